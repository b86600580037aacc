"""KV memory of a worker: names of blocks, and the pages that hold them."""

from .block_keys import KEY_BYTES, MAX_SALT_BYTES, BlockKeys
from .page_groups import PageGroups, Window, entry_pages
from .page_pool import KvListener, Match, OutOfMemory, PagePool, Reservation, ignore
from .page_tally import PageTally
from .party_pages import party_pages
from .tenant import TENANT_BYTES, tenant_of
from .windowed_pool import WindowedPagePool

__all__ = [
    "KEY_BYTES",
    "MAX_SALT_BYTES",
    "TENANT_BYTES",
    "BlockKeys",
    "KvListener",
    "Match",
    "OutOfMemory",
    "PageGroups",
    "PagePool",
    "PageTally",
    "Reservation",
    "Window",
    "WindowedPagePool",
    "entry_pages",
    "ignore",
    "party_pages",
    "tenant_of",
]
