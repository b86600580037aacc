"""Workers that count what a request needs alike: most fleets have one or two kinds of them."""

from dataclasses import dataclass
from functools import lru_cache

from antiphon.core.kv import PageGroups
from antiphon.types import KvGroup, KvShape


@dataclass(frozen=True, slots=True, eq=False)
class WorkerKind:
    """The limits of a worker that has nothing to do. Equal ones are mostly one object: `kind_of`.

    `groups`: how pages are counted that sliding windows give back while a request runs; None: none
    are.
    """

    max_model_len: int
    kv: KvShape | None
    total_pages: int | None
    """None: not known yet."""
    groups: PageGroups | None


@lru_cache(maxsize=256)
def kind_of(
    max_model_len: int,
    kv: KvShape | None,
    total_pages: int | None,
    kv_groups: tuple[KvGroup, ...],
) -> WorkerKind:
    """The kind of workers with these limits."""
    groups = None
    if kv is not None:
        counted = PageGroups(kv_groups, page_tokens=kv.page_tokens, block_tokens=kv.block_tokens)
        groups = counted if counted.windows else None
    return WorkerKind(max_model_len, kv, total_pages, groups)
