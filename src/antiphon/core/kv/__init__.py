"""KV memory of a worker: names of blocks, and the pages that hold them."""

from .block_keys import KEY_BYTES, MAX_SALT_BYTES, BlockKeys
from .page_pool import KvListener, Match, OutOfMemory, PagePool, Reservation, ignore
from .page_tally import PageTally
from .party_pages import party_pages
from .tenant import TENANT_BYTES, tenant_of

__all__ = [
    "KEY_BYTES",
    "MAX_SALT_BYTES",
    "TENANT_BYTES",
    "BlockKeys",
    "KvListener",
    "Match",
    "OutOfMemory",
    "PagePool",
    "PageTally",
    "Reservation",
    "ignore",
    "party_pages",
    "tenant_of",
]
