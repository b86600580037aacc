"""What a peer says opens its pages: what of it can be, before anything is made of it."""

from antiphon.types import DataAccess, RemoteMemory

from .host_names import is_loopback
from .tcp_endpoint import parse_endpoint

MOST_PATHS = 8
"""To one server of pages: each has threads of its own."""
MOST_METADATA_BYTES = 32 * 2**10
"""Of a NIXL agent: some kilobytes, more where it has many devices."""
_KEY_BYTES, _KEY_ID_BYTES = 32, 16
_MOST = 2**48
"""Pages, and bytes that an address can name."""


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
    if access.memory is None:
        return ""
    return _wrong_in_memory(access.memory, access.sealed)


def _wrong_in_memory(memory: RemoteMemory, sealed: bool) -> str:
    if sealed:
        return "its KV must be encrypted, and NIXL encrypts nothing"
    if not 1 <= len(memory.metadata) <= MOST_METADATA_BYTES:
        return f"{len(memory.metadata)} bytes of NIXL metadata"
    for name in ("generations_at", "pages_at", "pages"):
        if not 1 <= getattr(memory, name) <= _MOST:
            return f"{name} is {getattr(memory, name)}"
    return ""
