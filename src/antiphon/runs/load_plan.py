"""What is to be sent, when, and how it is judged: all of a run but who answers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from antiphon.core.goodput import Slos
from antiphon.types import LoadRun, Seconds
from antiphon.workload import (
    AnyArrivals,
    TimedSession,
    Workload,
    timed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Sessions of `workload` that begin by `arrivals`, for `duration_s`.

    No session begins once `most_calls` calls are planned. Calls due before `warmup_s` count for
    nothing. `arrivals` are of sessions, which have `calls_per_session` on average; rates here are
    of calls.
    """

    workload: Workload
    arrivals: AnyArrivals
    calls_per_session: float
    duration_s: Seconds
    most_calls: int | None = None
    warmup_s: Seconds = 0.0
    slos: Slos = ()
    devices: int = 1
    seed: int = 0
    title: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def rate_per_s(self) -> float | None:
        """Calls a second on average; None: when they come is the workload's own business."""
        rate = self.arrivals.rate_per_s
        return None if rate is None else rate * self.calls_per_session

    @property
    def span_s(self) -> Seconds:
        """How long sessions begin, as far as that can be told beforehand."""
        if self.most_calls is None or self.rate_per_s is None:
            return self.duration_s
        return min(self.duration_s, self.most_calls / self.rate_per_s)

    def at_rate(self, rate_per_s: float) -> "LoadPlan":
        """The same with so many calls a second. Raises `UsageError` unless that is above 0."""
        sessions_per_s = rate_per_s / self.calls_per_session
        return replace(self, arrivals=self.arrivals.at_rate(sessions_per_s))

    def sessions(self) -> Iterator[TimedSession]:
        """What is sent, in order of time; made as it is asked for."""
        planned = 0
        most = math.inf if self.most_calls is None else self.most_calls
        begun = timed(self.workload, self.arrivals, seed=self.seed, duration_s=self.duration_s)
        for one in begun:
            planned += len(one.session.turns)
            yield one
            if planned >= most:
                return

    def begun(self, target: str, model: str, *, version: str, command: str = "") -> LoadRun:
        """The run against `target`, as it is known when it begins."""
        return LoadRun(
            title=self.title or f"{model or 'a model'} at {target}",
            target=target,
            model=model,
            workload=self.workload.description,
            arrivals=self.arrivals.description,
            rate_per_s=self.rate_per_s,
            duration_s=self.span_s,
            warmup_s=self.warmup_s,
            slos=tuple(self.slos),
            devices=self.devices,
            seed=self.seed,
            version=version,
            command=command,
            notes=self.notes,
        )
