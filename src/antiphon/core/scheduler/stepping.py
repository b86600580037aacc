"""The one step that is outstanding: what it computes, and what of its result counts."""

from collections.abc import Callable

from antiphon.errors import BugError
from antiphon.types import SchedulerEvent, Seconds, StepPlan, StepResult

from .batching import Flight, prefills_first
from .completion import Completion
from .receiving import Receiving
from .roster import Roster
from .sequence_memory import SequenceMemory


class Stepping:
    """Makes plans of what runs; if nothing does, of what can begin before all its KV is here.

    `steps`, `computed_tokens` and `busy_s` only grow.
    """

    def __init__(
        self,
        roster: Roster,
        memory: SequenceMemory,
        receiving: Receiving,
        completion: Completion,
        batch: Callable[..., Flight | None],
        *,
        budget: int,
        prefill_first: bool = False,
    ) -> None:
        self.steps = self.computed_tokens = 0
        self.busy_s: Seconds = 0.0
        self._roster = roster
        self._memory = memory
        self._receiving = receiving
        self._completion = completion
        self._batch = batch
        self._budget = budget
        self._prefill_first = prefill_first
        self._pace = receiving.pace
        self._flight: Flight | None = None

    @property
    def outstanding(self) -> bool:
        """Whether a plan is being computed."""
        return self._flight is not None

    def begin(self, now: Seconds, events: list[SchedulerEvent], repeat: int = 1) -> StepPlan | None:
        """The next plan; None: nothing can be computed. Who starts with it is added to `events`.

        `repeat`: so many times what runs may be run in a row.
        """
        self._flight = self._of_running(repeat) or self._early(now, events)
        if self._flight is None:
            return None
        self._roster.forgotten.clear()
        self.steps += 1
        self.computed_tokens += self._flight.tokens
        return self._flight.plan

    def complete(
        self, plan: StepPlan, result: StepResult, now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        """Take in the result. Raises `BugError` if it is not that of the outstanding plan."""
        flight = self._flight
        if flight is None or flight.plan is not plan or result.number != plan.number:
            raise BugError(f"step {plan.number} is completed but is not outstanding")
        if result.broken_off and plan.awaits is None:
            raise BugError(f"step {plan.number} is broken off, but awaits nothing")
        counts = True
        if plan.awaits is not None:
            counts, came = self._receiving.end_early(plan.awaits, result, now)
            events += came
        elif len(plan.chunks) == 1 and not result.runs:
            # As in a step that begins early: decodes cost more a token.
            self._pace.observed(flight.tokens, result.elapsed_s)
        self.busy_s += result.elapsed_s
        if result.runs:
            passes = self._completion.take_runs(flight, result, now, events)
            self.steps += passes - 1
            self.computed_tokens += (passes - 1) * flight.tokens
        elif counts:
            self._completion.take(flight, result, now, events)
        else:
            self._completion.drop(flight)
        self._flight = None

    def fail(
        self, plan: StepPlan, message: str, now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        """It broke off. Raises `BugError` if it is not the outstanding one."""
        flight = self._flight
        if flight is None or flight.plan is not plan:
            raise BugError(f"step {plan.number} fails but is not outstanding")
        self._completion.fail(flight, message, now, events)
        if plan.awaits is not None:
            events += self._receiving.end_early(plan.awaits, None, now)[1]
        self._flight = None

    def _of_running(self, repeat: int) -> Flight | None:
        running = self._roster.running.values()
        return self._batch(
            prefills_first(running) if self._prefill_first else running,
            self._memory,
            number=self.steps,
            budget=self._budget,
            ended=tuple(self._roster.forgotten),
            repeat=repeat,
        )

    def _early(self, now: Seconds, events: list[SchedulerEvent]) -> Flight | None:
        """Nothing runs: a step of whoever's KV will be here in time."""
        early = self._receiving.begin_early(self._pace.seconds, self._budget, now)
        if early is None:
            return None
        leader, awaits, started = early
        events.append(started)
        return self._batch(
            (leader,),
            self._memory,
            number=self.steps,
            budget=self._budget,
            ended=tuple(self._roster.forgotten),
            awaits=awaits,
        )
