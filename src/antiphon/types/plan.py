"""What a worker computes in one step, and what came of it."""

from dataclasses import dataclass

from .ids import PageId, RequestId, Seconds, SequenceKey, TokenId
from .request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of one sequence's tokens computed in a step; decode is a chunk of one.

    `tokens` sit at positions `start … start + len(tokens) − 1`. The sequence's page table covers
    them: its entries from index `page_start` on become `new_pages`, earlier ones stay as the
    previous chunks of this sequence set them (`page_start == 0` replaces the table: first chunk,
    or a recomputation). Position p lives in table entry p // page_tokens, slot p % page_tokens.

    If `samples` is not empty, the logits of the last token are sampled once for each sequence in
    it, as output token number `index`. A prompt's last chunk samples all sequences of its request
    that have no token yet.
    """

    request: Request
    sequence: int
    tokens: tuple[TokenId, ...]
    start: int
    page_start: int = 0
    new_pages: tuple[PageId, ...] = ()
    samples: tuple[int, ...] = ()
    index: int = 0


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy one whole page, all layers, before the forward pass (a fork's incomplete block)."""

    source: PageId
    target: PageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A fetch that is still on its way while the step that needs it begins.

    `wait_s`: so long, in all, the step may stand still for it.
    """

    request: RequestId
    attempt: int
    wait_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One forward pass. `ended` lists sequences that the engine may forget; then come `copies`.

    `ended` goes before all else: a request id that is used again may be in it and in a chunk. No
    page is a source and a target of `copies`, so their order does not matter. With `awaits` the
    plan is one chunk, which reads KV that comes while it is computed.

    `repeat` above 1: all chunks are decodes, and the pass may be run up to so many times in a row,
    each on the tokens that the one before drew, one position on; there is room for them. Whoever
    does so stops after any of these passes, and no later than with the first sequence that ends.
    """

    number: int
    chunks: tuple[Chunk, ...]
    copies: tuple[PageCopy, ...] = ()
    ended: tuple[SequenceKey, ...] = ()
    awaits: Awaited | None = None
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural-log probabilities before temperature: the chosen token's and the likeliest ones'."""

    chosen: float
    top: tuple[tuple[TokenId, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One drawn token."""

    request: RequestId
    sequence: int
    token: TokenId
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class DrawnRun:
    """The tokens that one sequence drew in the passes of a repeated step, one each."""

    request: RequestId
    sequence: int
    tokens: tuple[TokenId, ...]


@dataclass(frozen=True, slots=True)
class SequenceFault:
    """The engine could not sample this sequence (for example: its logits are not finite)."""

    request: RequestId
    sequence: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What the engine reports for the plan of the same number.

    Every (request, sequence) of the plan's `samples` appears once, in `samples` or in `faults`;
    none does if the step was `broken_off`, because the KV that it awaits did not come in time. If
    it was repeated, each appears in `runs` instead, all with as many tokens as there were passes.
    """

    number: int
    samples: tuple[Sample, ...] = ()
    faults: tuple[SequenceFault, ...] = ()
    elapsed_s: Seconds = 0.0
    broken_off: bool = False
    runs: tuple[DrawnRun, ...] = ()
