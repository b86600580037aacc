"""May a step begin while KV that it reads is still on its way, layer by layer?

    load      │ 1 │ 2 │ 3 │ 4 │ 5 │ 6 │ 7 │ 8 │
    compute                       │1│2│3│4│5│6│7│8│      begun when 4 groups were here: none waits

Layer-wise loading (Pensieve, EuroSys 2025; LMCache's layerwise retrieval) hides the shorter of
both. The step is begun as early as none of its layers is predicted to wait, for it holds the device
while it waits.
"""

from dataclasses import dataclass

from antiphon.types import Seconds

LEAST_GAIN_S: Seconds = 0.005
"""A load that is over so soon is waited for: beginning early costs a step of its own."""
MOST_STALL_S: Seconds = 0.05
"""So long, in all, a step stands still if its layers come later than predicted."""
_LEAST_TOKENS = 8
"""Fewer tokens take as long as so many: the weights are read once, whatever is computed."""
_WEIGHT = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """How far a fetch has come: `here` of `groups` groups of layers, one in `group_s`."""

    here: int
    groups: int
    group_s: Seconds


class PrefillPace:
    """How long a token takes in steps of one sequence that compute several: a moving average.

    Mutable.
    """

    def __init__(self) -> None:
        self._token_s: Seconds | None = None

    def observed(self, tokens: int, seconds: Seconds) -> None:
        """A step computed so many tokens of one sequence. Mutates."""
        if tokens < _LEAST_TOKENS:
            return
        token_s = max(0.0, seconds) / tokens
        before = token_s if self._token_s is None else self._token_s
        self._token_s = before + _WEIGHT * (token_s - before)

    def seconds(self, tokens: int) -> Seconds | None:
        """Predicted time of a step of that many tokens; None: nothing was seen yet."""
        return None if self._token_s is None else self._token_s * max(tokens, _LEAST_TOKENS)


def may_begin(arrival: Arrival, step_s: Seconds) -> bool:
    """Whether a step of `step_s` that begins now gains time, and no layer of it has to wait.

    Layers take equal shares of the step, and groups come evenly: so if neither the next group is
    late nor the last one, none is.
    """
    here, groups, group_s = arrival.here, arrival.groups, arrival.group_s
    left = groups - here
    if here < 1 or left < 1 or left * group_s < LEAST_GAIN_S:
        return False
    share_s = step_s / groups
    return group_s <= here * share_s and left * group_s <= (groups - 1) * share_s
