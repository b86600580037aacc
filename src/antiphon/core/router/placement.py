"""Where an open request is, as its router believes."""

from dataclasses import dataclass
from enum import Enum

from antiphon.types import STORE, Seconds, Tier, WorkerId

from .demand import Demand


class Phase(Enum):
    """What the worker that has the request is doing with it."""

    PREFILL = "prefill"
    """Computes its prompt, for another one to go on."""
    WHOLE = "whole"
    """Computes its prompt, and will go on itself."""
    OFFERED = "offered"
    """Its prompt is computed; who goes on is not decided for good."""
    DECODE = "decode"


@dataclass(slots=True, eq=False)
class Placement:
    """One open request. `here` has it now; `next` is who is to decode it, if that is another.

    `left` of the `uncached` tokens are still to be computed, as far as is known. `seen`: its
    worker's last report counted it. `number` is that of the decision, `next_chosen` that of the
    one before for `next`: a choice that is only for the time being does not take its turn.
    """

    demand: Demand
    phase: Phase
    here: WorkerId | None
    next: WorkerId | None
    uncached: int
    left: int
    occupied_s: Seconds
    """How long all of `uncached` keeps the next prompt from beginning, at the model's pace."""
    fetch: int = 0
    """Tokens that it begins with and that come from the store; 0: none do, or they are here."""
    fetch_s: Seconds = 0.0
    fetch_tier: Tier | None = None
    fetch_store: WorkerId = STORE
    seen: bool = False
    number: int = 0
    next_chosen: int = 0

    @property
    def queued_s(self) -> Seconds:
        """Until the next one may begin, by what is left, at the model's pace."""
        return self.occupied_s * self.left / self.uncached if self.left else 0.0

    @property
    def counted(self) -> int:
        """Tokens that its worker reports of it at most: what it has itself it finds out later."""
        return self.demand.tokens - self.fetch


def decoding_at(worker: WorkerId, demand: Demand) -> Placement:
    """It decodes there, and all of its prompt is computed."""
    return Placement(
        demand=demand,
        phase=Phase.DECODE,
        here=worker,
        next=None,
        uncached=0,
        left=0,
        occupied_s=0.0,
    )
