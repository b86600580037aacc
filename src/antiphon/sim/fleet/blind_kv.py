"""KV memory whose content nobody follows, for runs too large to check every read."""

from collections.abc import Sequence
from functools import lru_cache

from antiphon.core.scheduler import SequenceMemory, SequenceState
from antiphon.types import OfferedPage, PageId, StepPlan, TokenId

from ..shadow_kv import PageContent, ShadowKv

_SEALED = 2
"""An even generation: nobody writes."""


class BlindKv(ShadowKv):
    """Takes every write and gives every page: what a page holds is not known, so never wrong."""

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """See `ShadowKv`."""
        return tuple(map(_sealed, pages))

    def read(self, wanted: OfferedPage) -> PageContent | None:
        """See `ShadowKv`."""
        return ()

    def content(self, page: PageId) -> PageContent:
        """See `ShadowKv`."""
        return ()

    def pull(self, page: PageId, content: Sequence[int]) -> None:
        """See `ShadowKv`."""

    def run(self, plan: StepPlan) -> None:
        """See `ShadowKv`."""


class BlindMemory(SequenceMemory):
    """Whoever hears of blocks wants no tokens: a name stands for its content."""

    def told_tokens(self, sequence: SequenceState, block: int) -> Sequence[TokenId]:
        """See `SequenceMemory`."""
        return ()


@lru_cache(maxsize=1 << 16)
def _sealed(page: PageId) -> OfferedPage:
    """The same for all workers: a page of that number."""
    return OfferedPage(page, _SEALED, 0)
