"""What a scheduler is put together from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.handover import LeaseBook
from antiphon.core.kv import BlockKeys, PagePool
from antiphon.types import BlockKey, ModelInfo, Request, TokenId

from .admission import Admission
from .batching import Flight, batch
from .completion import Completion
from .history import History
from .receiving import Receiving
from .roster import Roster
from .sequence_memory import SequenceMemory

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
    roster: type[Roster] = Roster
    completion: type[Completion] = Completion
    lease_book: type[LeaseBook] = LeaseBook
    receiving: type[Receiving] = Receiving
    batch: Callable[..., Flight | None] = batch


STANDARD_PARTS = Parts()
