"""A run that can't hold its rate any more: that is certain long before the run is over.

At too high a rate calls are late from the middle of a run on, and what is simulated after that is
the most expensive part of it: full batches and long queues. Once more than one in ten of all calls
that may count are missed, nothing that comes can change the verdict.
"""

from collections.abc import Iterable

from antiphon.core.goodput import GOAL, Attainment
from antiphon.types import Seconds

from ..fleet import TokenSession

_ROUNDING_S: Seconds = 1e-6


class RunIsLost(Exception):
    """Ends a run. No error: what was `attained` by then is told."""

    def __init__(self, attained: Attainment) -> None:
        super().__init__()
        self.attained = attained


def most_calls(sessions: Iterable[TokenSession], warmup_s: Seconds) -> int:
    """How many calls may count at most: those that may be due at `warmup_s` or later.

    When a call that follows others is due depends on these: it may be after the warm-up.
    """
    return sum(
        bool(turn.after) or session.at_s + turn.pause_s >= warmup_s - _ROUNDING_S
        for session in sessions
        for turn in session.turns
    )


def is_lost(attained: Attainment, most: int) -> bool:
    """Whether too few are in time, even if the rest of `most` calls all will be.

    `attained`: of calls whose verdict is known by now.
    """
    missed = attained.calls - attained.met
    return most > 0 and (most - missed) / most < GOAL
