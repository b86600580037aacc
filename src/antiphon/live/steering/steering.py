"""A planner that steers a live server: see `sim.fleet.steering` for its twin in virtual time.

interval over ─► Observation ─► Planner.decide ─┬─► MoveBook ─► orders ─► Hand (mode act)
                                                └─► status, metrics, decision log
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from antiphon.core.planner import Add, Decision, Flip, Move, Planner, Take, Watch
from antiphon.live.admin.status import DecisionStatus, PlannerStatus
from antiphon.live.gateway import Ports
from antiphon.live.gateway.planner_metrics import PlannerCounts
from antiphon.types import (
    Config,
    Outcome,
    Rejected,
    RequestRecord,
    Seconds,
)

from .crew import Crew, CrewNow
from .hand import Hand, Spawn

_KEPT_DECISIONS = 10
"""With moves: what one wants to see of a planner that is calm most of the time."""


class Steering:
    """Drives one planner. Without a `hand` it only says what it would do.

    All methods run on the gateway's event loop.
    """

    def __init__(
        self,
        planner: Planner,
        watch: Watch,
        crew: Crew,
        hand: Hand | None,
        counts: PlannerCounts,
        *,
        config: Config,
        clock: Callable[[], Seconds],
    ) -> None:
        self._planner = planner
        self._watch = watch
        self._crew = crew
        self._book = crew.book
        self._hand = hand
        self._mode = config.planner.mode
        self._clock = clock
        self._sample_s = config.cluster.heartbeat_s
        self._next_at = clock() + config.planner.interval_s
        self._newest: Decision | None = None
        self._with_moves: deque[Decision] = deque(maxlen=_KEPT_DECISIONS)
        self.counts = counts
        """For Prometheus."""

    def watched(self, ports: Ports) -> Ports:
        """`ports` of a gateway whose requests are counted here, too."""
        watch = self._watch

        def over(record: RequestRecord, rejected: Rejected | None) -> None:
            ports.log_request(record, rejected)
            if rejected is None:
                finished = record.outcome is Outcome.FINISHED
                answered = record.output_tokens if finished else None
                watch.ended(record.prompt_tokens, record.cached_tokens, answered)

        return replace(
            ports,
            heard_request=lambda request: watch.arrived(len(request.prompt)),
            log_request=over,
        )

    async def run(self) -> None:
        """Look as often as workers report, and decide at each interval's end, until cancelled: then
        drains that were begun are given up, and their workers take requests again."""
        async with asyncio.TaskGroup() as deeds:
            while True:
                await asyncio.sleep(self._sample_s)
                self.look(deeds.create_task)

    def look(self, spawn: Spawn) -> None:
        """See what workers report now, and decide if it is time to."""
        now = self._clock()
        crew = self._crew.look(now)
        self.counts.failed_adds = self._book.failed_adds
        self._watch.sample(crew.workers, crew.views)
        if now >= self._next_at:
            self._decide(crew, now, spawn)

    def not_added(self, order: int, why: str) -> None:
        """The supervisor could not start the worker that this order asked for."""
        self._book.not_added(order, why, self._clock())
        self.counts.failed_adds = self._book.failed_adds

    def status(self) -> PlannerStatus:
        """What it wants and why, for operators."""
        now = self._clock()
        shown = [one for one in self._with_moves if one is not self._newest]
        shown += [] if self._newest is None else [self._newest]
        return PlannerStatus(
            mode=self._mode,
            budget=self.counts.budget,
            decisions=tuple(_status(decision, now) for decision in reversed(shown)),
            withheld=self._book.withheld(now),
            ready_s=self._book.ready_s,
        )

    def _decide(self, crew: CrewNow, now: Seconds, spawn: Spawn) -> None:
        starts_s = self._book.starts_s()
        seen = self._watch.observe(now, crew.workers, crew.views, crew.held, starts_s)
        decision = self._planner.decide(seen)
        self._next_at = decision.ask_again_at
        self._newest = self.counts.latest = decision
        self.counts.decisions += 1
        if decision.moves:
            self._with_moves.append(decision)
        if self._hand is not None:
            orders = self._book.carry_out(decision.moves, self._crew.present(), now)
            self._hand.carry_out(orders, spawn)


def _status(decision: Decision, now: Seconds) -> DecisionStatus:
    return DecisionStatus(
        ago_s=round(now - decision.at, 3),
        target={role.value: workers for role, workers in decision.target},
        needed={role.value: workers for role, workers in decision.wanted},
        moves=tuple(map(_words, decision.moves)),
        expected_per_s=round(decision.expected_per_s, 3),
        reason=decision.reason,
    )


def _words(move: Move) -> str:
    match move:
        case Add(role, workers):
            return f"add {workers} {role}"
        case Take(role, workers):
            return f"end {workers} {role}"
        case Flip(role, to, workers):
            return f"flip {workers} {role} to {to}"
