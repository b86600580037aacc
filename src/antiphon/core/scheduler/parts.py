"""What a scheduler is put together from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.handover import LeaseBook
from antiphon.core.kv import BlockKeys, KvListener, PagePool, WindowedPagePool
from antiphon.types import BlockKey, KvConfig, ModelInfo, Request, SchedulerConfig, TokenId

from .admission import Admission
from .batching import Flight, batch
from .completion import Completion
from .history import History
from .limits import Limits
from .receiving import Receiving
from .roster import Roster
from .sequence_memory import SequenceMemory
from .windowed_admission import WindowedAdmission
from .windowed_memory import WindowedMemory

IdRange: TypeAlias = Callable[[Sequence[TokenId]], tuple[TokenId, TokenId]]


def no_names(_request: Request, _model: ModelInfo, _block_tokens: int) -> Sequence[BlockKey]:
    """Nobody has computed the keys of a prompt's blocks before."""
    return ()


def id_range(tokens: Sequence[TokenId]) -> tuple[TokenId, TokenId]:
    """The least and the largest of at least one token."""
    ids = set(tokens)  # a long prompt has many tokens, and few different ones
    return min(ids), max(ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The kind of each part. Tests put in faulty ones, and demand that a law finds them.

    For whoever knows it already there are two that save work: `known_names` is what `block_keys`
    would compute of a prompt, as far as somebody has; `id_range` is the least and the largest of a
    request's tokens, or less and more than these.
    """

    pool: type[PagePool] = PagePool
    block_keys: type[BlockKeys] = BlockKeys
    known_names: Callable[[Request, ModelInfo, int], Sequence[BlockKey]] = no_names
    id_range: IdRange = id_range
    memory: type[SequenceMemory] = SequenceMemory
    history: type[History] = History
    admission: type[Admission] = Admission
    windowed_pool: type[WindowedPagePool] = WindowedPagePool
    windowed_memory: type[WindowedMemory] = WindowedMemory
    windowed_admission: type[WindowedAdmission] = WindowedAdmission
    roster: type[Roster] = Roster
    completion: type[Completion] = Completion
    lease_book: type[LeaseBook] = LeaseBook
    receiving: type[Receiving] = Receiving
    batch: Callable[..., Flight | None] = batch

    def of_memory(
        self,
        config: SchedulerConfig,
        kv: KvConfig,
        limits: Limits,
        history: History,
        listen: KvListener,
    ) -> tuple[PagePool, SequenceMemory, Admission]:
        """What keeps count of KV memory: of a model with sliding windows, or of any other."""
        groups, most = limits.groups, limits.max_sequences
        if groups.windows:
            windowed = self.windowed_pool(
                limits.total_pages, groups, prefix_cache=kv.prefix_cache, listen=listen
            )
            return (
                windowed,
                self.windowed_memory(windowed, groups=groups, step_tokens=limits.step_tokens),
                self.windowed_admission(
                    config, windowed, history, groups=groups, max_sequences=most
                ),
            )
        pool = self.pool(
            limits.total_pages, groups.block_pages, prefix_cache=kv.prefix_cache, listen=listen
        )
        size = groups.page_tokens
        return (
            pool,
            self.memory(pool, page_tokens=size),
            self.admission(config, pool, history, page_tokens=size, max_sequences=most),
        )


STANDARD_PARTS = Parts()
