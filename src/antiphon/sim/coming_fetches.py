"""Fetches of a virtual worker while they are on their way, and steps that begin before they end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from antiphon.types import Awaited, Fetch, RequestId, Seconds, StepPlan, StepResult

from .step_run import PassEngine

CallAt: TypeAlias = Callable[[Seconds, Callable[[], None]], None]
Arriving: TypeAlias = Callable[[RequestId, int, int, int, Seconds], None]
"""(request, attempt, groups here, of how many, time of each): as for `Scheduler.arriving`."""


class FetchSide(Protocol):
    """What carries a fetch out. `groups`: it comes in so many groups of layers."""

    @property
    def groups(self) -> int:
        """1: all at once."""
        ...

    def late(self, fetch: Fetch, /) -> Seconds:
        """How much later than usual its last layers come."""
        ...

    def copy(self, fetch: Fetch, /) -> tuple[bool, ...]:
        """Its pages are written; for each block, whether it could be had."""
        ...

    def spoil(self, plan: StepPlan, /) -> None:
        """A step was broken off in the middle: what it was to write holds anything."""
        ...


@dataclass(slots=True)
class _Coming:
    ends_at: Seconds
    good: bool = False
    """Known when it has ended."""


class ComingFetches:
    """What a worker's driver knows of them. `call_at` is its own, `arriving` its scheduler's."""

    def __init__(self, side: FetchSide, call_at: CallAt, arriving: Arriving) -> None:
        self._side = side
        self._call_at = call_at
        self._arriving = arriving
        self._coming: dict[tuple[RequestId, int], _Coming] = {}

    def begin(
        self,
        fetch: Fetch,
        now: Seconds,
        took_s: Seconds,
        end: Callable[[Fetch, tuple[bool, ...]], None],
    ) -> None:
        """Its groups of layers come evenly within `took_s`, the last one perhaps later."""
        coming = _Coming(now + took_s + self._side.late(fetch))
        if self._side.groups > 1:  # else no step begins before it is over
            self._coming[fetch.request, fetch.attempt] = coming
        groups = self._side.groups
        group_s = took_s / groups
        for here in range(1, groups):

            def arriving(here: int = here) -> None:
                self._arriving(fetch.request, fetch.attempt, here, groups, group_s)

            self._call_at(now + here * group_s, arriving)

        def ended() -> None:
            good = self._side.copy(fetch)
            coming.good = all(good)
            end(fetch, good)

        self._call_at(coming.ends_at, ended)

    def step_ends_at(self, awaits: Awaited, now: Seconds, step_s: Seconds) -> Seconds:
        """When a step is over that begins now: it stops before the last group, if need be."""
        coming = self._of(awaits)
        share_s = step_s / self._side.groups
        stops_at = now + step_s - share_s
        if coming.ends_at > stops_at + awaits.wait_s:
            return stops_at + awaits.wait_s
        return max(stops_at, coming.ends_at) + share_s

    def result(
        self, plan: StepPlan, awaits: Awaited, engine: PassEngine, now: Seconds
    ) -> StepResult:
        """What the step says that is over now: nothing, if it did not get what it awaits."""
        coming = self._of(awaits)
        if coming.ends_at <= now and coming.good:
            return engine.forward(plan)
        self._side.spoil(plan)
        return StepResult(number=plan.number, elapsed_s=engine.passes_s(plan, 1), broken_off=True)

    def _of(self, awaits: Awaited) -> _Coming:
        return self._coming[awaits.request, awaits.attempt]
