"""KV between hosts: a region's pages over parallel TCP streams, for whoever has the key.

PageServer (owner's region, keys) ◄── handshake, requests ── PageClient (taker's region, paths)
"""

from .client_stream import StreamLimits
from .data_keys import DataKeys
from .page_client import STREAMS, PageClient, Read
from .page_server import PageServer, ServerLimits
from .reading import OnPart, Table

__all__ = [
    "STREAMS",
    "DataKeys",
    "OnPart",
    "PageClient",
    "PageServer",
    "Read",
    "ServerLimits",
    "StreamLimits",
    "Table",
]
