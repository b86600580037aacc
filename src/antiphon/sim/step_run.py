"""A plan that a virtual worker computes: once, or as often in a row as nothing comes between."""

from dataclasses import replace
from typing import Protocol

from antiphon.types import Seconds, StepPlan, StepResult


class PassEngine(Protocol):
    """An engine that knows beforehand what its passes come to."""

    def passes(self, plan: StepPlan) -> int:
        """How often it runs the plan in a row: `plan.repeat`, or until the first sequence ends."""
        ...

    def passes_s(self, plan: StepPlan, passes: int) -> Seconds:
        """How long so many passes take."""
        ...

    def lag_s(self, plan: StepPlan) -> Seconds:
        """How much later what comes of a pass is there than the next may begin (a pipeline)."""
        ...

    def forward(self, plan: StepPlan, passes: int = 1) -> StepResult:
        """What comes of them. Mutates: said once, at their end."""
        ...


class StepRun:
    """Passes under way since `began_at`, on a device that is `slow_factor` times as slow."""

    def __init__(
        self, engine: PassEngine, plan: StepPlan, began_at: Seconds, slow_factor: float = 1.0
    ) -> None:
        self.plan = plan
        self.passes = passes = engine.passes(plan)
        self._engine = engine
        self._began_at = began_at
        self._slow_factor = slow_factor
        self._result = engine.forward(plan) if plan.repeat == 1 else None
        first_s = engine.passes_s(plan, 1) if self._result is None else self._result.elapsed_s
        self._first_s = slow_factor * first_s
        self._slower_s = 0.0
        """Each pass takes so much longer than the one before: contexts grow evenly."""
        if passes > 1:
            more_s = slow_factor * engine.passes_s(plan, passes) - passes * self._first_s
            self._slower_s = 2 * more_s / (passes * (passes - 1))

    @property
    def ends_at(self) -> Seconds:
        """When the last pass is over."""
        return self._over_at(self.passes)

    def cut(self, now: Seconds) -> bool:
        """Somebody may have come: stop with the pass that is under way. False: it is the last."""
        passes = self._over_by(now)
        passes += passes < self.passes and self._over_at(passes) < now
        passes = max(1, passes)
        shorter, self.passes = passes < self.passes, passes
        return shorter

    def break_off(self, now: Seconds) -> bool:
        """Only passes that are over by now count. False: there is none."""
        self.passes = self._over_by(now)
        return self.passes > 0

    def result(self) -> StepResult:
        """What came of it, said at its end: a slow device is seen to be slow."""
        result = self._result or self._engine.forward(self.plan, self.passes)
        if self._slow_factor == 1.0:
            return result
        return replace(result, elapsed_s=self._slow_factor * result.elapsed_s)

    def _over_at(self, passes: int) -> Seconds:
        slower_s = self._slower_s * (passes * (passes - 1) // 2)
        return self._began_at + passes * self._first_s + slower_s

    def _over_by(self, now: Seconds) -> int:
        """How many passes are over by then."""
        over, not_over = 0, self.passes + 1
        while not_over - over > 1:
            middle = (over + not_over) // 2
            if self._over_at(middle) <= now:
                over = middle
            else:
                not_over = middle
        return over
