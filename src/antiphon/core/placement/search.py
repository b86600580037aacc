"""Which placement serves the most within its targets, for its devices or its money.

    Space ─► candidates with an optimistic bound each ─► ask: the most promising one
                                                    tell: its goodput, simulated ─► ranking

The search is ask and tell: it knows no simulator. Closed forms bound what a candidate can serve at
best; one whose bound is below what another has reached already is never simulated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .candidates import Candidate, Colocated, Instance, Space, Split, matched


class Bounds(Protocol):
    """What workers could serve at best, in requests a second, and what they cost."""

    def prefill_per_s(self, instance: Instance) -> float:
        """Prompts of one worker that does nothing else."""
        ...

    def decode_per_s(self, instance: Instance) -> float:
        """Answers of one worker that does nothing else."""
        ...

    def mixed_per_s(self, instance: Instance, step_tokens: int) -> float:
        """Requests of one worker that does both."""
        ...

    def price_per_hour(self, instance: Instance) -> float:
        """Of one worker."""
        ...


class Objective(StrEnum):
    """What the ranking is by."""

    DEVICES = "devices"
    """Goodput per device."""
    MONEY = "money"
    """Requests within targets per unit of money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A candidate before it is simulated. `bound_per_s`: more than that it can't serve."""

    candidate: Candidate
    bound_per_s: float
    price_per_hour: float

    def worth(self, per_s: float, objective: Objective) -> float:
        """Requests a second per device, or per unit of money, if it serves so many."""
        match objective:
            case Objective.DEVICES:
                return per_s / self.candidate.devices
            case Objective.MONEY:
                return per_s * 3600 / self.price_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A candidate and its goodput, of several seeds the least and the most too."""

    promise: Promise
    per_s: float
    least_per_s: float
    most_per_s: float


class PlacementSearch:
    """`slack`: how much a bound may be too low. `most_trials`: simulations, at most."""

    def __init__(
        self,
        space: Space,
        bounds: Bounds,
        *,
        objective: Objective = Objective.DEVICES,
        slack: float = 0.1,
        most_trials: int = 24,
    ) -> None:
        self._objective = objective
        self._slack = slack
        self._left = most_trials
        self.judged: list[Judged] = []
        self.promises: Sequence[Promise] = sorted(
            _promises(space, bounds), key=self._order, reverse=True
        )
        """All candidates, the most promising first."""
        self._next = 0
        self.pruned = 0
        """Candidates that need no simulation."""

    def ask(self) -> Promise | None:
        """What is to be simulated next; None: nothing can be better any more. Mutates."""
        if self._next == len(self.promises) or not self._left:
            return None
        promise = self.promises[self._next]
        best = max((self.worth(one) for one in self.judged), default=0.0)
        bound = promise.worth(promise.bound_per_s * (1 + self._slack), self._objective)
        if bound < best:
            self.pruned = len(self.promises) - self._next
            self._next = len(self.promises)
            return None
        self._next += 1
        self._left -= 1
        return promise

    def tell(self, judged: Judged) -> None:
        """Take in what was simulated. Mutates."""
        self.judged.append(judged)

    def worth(self, judged: Judged) -> float:
        """By the objective."""
        return judged.promise.worth(judged.per_s, self._objective)

    def ranking(self) -> Sequence[Judged]:
        """Best first; of equal ones the one with fewer devices."""
        return sorted(
            self.judged, key=lambda one: (-self.worth(one), one.promise.candidate.devices)
        )

    def _order(self, promise: Promise) -> tuple[float, int, str]:
        candidate = promise.candidate
        worth = promise.worth(promise.bound_per_s, self._objective)
        return worth, -candidate.devices, candidate.text


def _promises(space: Space, bounds: Bounds) -> Iterator[Promise]:
    """Every candidate that can serve anything within its targets."""
    yield from _colocated(space, bounds)
    for prefill, decode in space.splits():
        rates = bounds.prefill_per_s(prefill), bounds.decode_per_s(decode)
        if not all(rates):
            continue
        numbers = matched(rates[0], prefill.devices, rates[1], decode.devices, space.most_devices)
        if numbers is None:
            continue
        price = numbers[0] * bounds.price_per_hour(prefill)
        price += numbers[1] * bounds.price_per_hour(decode)
        for conditional in (False, True):
            yield Promise(
                candidate=Split(
                    prefill=prefill,
                    prefill_workers=numbers[0],
                    decode=decode,
                    decode_workers=numbers[1],
                    conditional=conditional,
                ),
                bound_per_s=min(numbers[0] * rates[0], numbers[1] * rates[1]),
                price_per_hour=price,
            )


def _colocated(space: Space, bounds: Bounds) -> Iterator[Promise]:
    for instance in space.instances:
        for step_tokens in space.step_tokens:
            per_s = bounds.mixed_per_s(instance, step_tokens)
            if per_s and instance.devices <= space.most_devices:
                yield Promise(
                    candidate=Colocated(instance=instance, workers=1, step_tokens=step_tokens),
                    bound_per_s=per_s,
                    price_per_hour=bounds.price_per_hour(instance),
                )
