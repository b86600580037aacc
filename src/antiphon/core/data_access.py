"""What a peer says opens its pages: what of it can be, before anything is made of it."""

from antiphon.types import DataAccess

from .host_names import is_loopback
from .tcp_endpoint import parse_endpoint

MOST_PATHS = 8
"""To one server of pages: each has threads of its own."""
_KEY_BYTES, _KEY_ID_BYTES = 32, 16


def wrong_in_access(access: DataAccess, *, here: bool = False) -> str:
    """What of it can't be; empty if all can. `here`: the server must be on this host's loopback."""
    if (len(access.key), len(access.key_id)) != (_KEY_BYTES, _KEY_ID_BYTES):
        return "key and key_id have another size"
    if not 1 <= len(access.endpoints) <= MOST_PATHS:
        return f"{len(access.endpoints)} endpoints"
    for one in access.endpoints:
        endpoint = parse_endpoint(one)
        if endpoint is None or (here and not is_loopback(endpoint.host)):
            return f"endpoint {one!r:.80}"
    return ""
