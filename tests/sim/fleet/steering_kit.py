"""Small fleets that a planner steers: a prompt takes 0.1 s, 20 sequences decode within 60 ms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import pairwise
from math import log

from antiphon.core.config import build
from antiphon.core.draws import Draws
from antiphon.core.faults import FaultPlan
from antiphon.core.goodput import Attainment
from antiphon.core.planner import (
    Capacity,
    Decision,
    Move,
    Observation,
    Planner,
    PlannerRules,
)
from antiphon.perf import LinkTime
from antiphon.sim.fleet import (
    Fleet,
    FleetSpec,
    Pool,
    Steering,
    StorePlan,
    TokenSession,
    TokenTurn,
    UserRules,
)
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Seconds, Slo, StepPlan, WorkerId

PREFILL, DECODE = Role.PREFILL, Role.DECODE
SLO = Slo(ttft_s=0.5, tpot_s=0.06)
PROMPT, ANSWER = 200, 20
KV_TOKENS = 20_000


@dataclass(frozen=True)
class Times:
    token_s: Seconds = 5e-4
    step_s: Seconds = 0.02
    sequence_s: Seconds = 0.002

    def seconds(self, plan: StepPlan) -> Seconds:
        lengths = [len(chunk.tokens) for chunk in plan.chunks]
        batch = sum(length == 1 for length in lengths)
        prompts_s = self.token_s * (sum(lengths) - batch)
        return prompts_s + (self.decode_step_s(batch, 0) if batch else 0.0)

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        return passes * self.seconds(plan)

    def lag_s(self, plan: StepPlan) -> Seconds:
        return 0.0

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return tokens * self.token_s

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return self.step_s + sequences * self.sequence_s


TIMES = Times()
TOO_FAST = Times(token_s=5e-4 / 3, step_s=0.02 / 3, sequence_s=0.002 / 3)
RULES = PlannerRules(
    slo=SLO, interval_s=5.0, ready_s=5.0, cool_down_s=15.0, clear_s=10.0, memory_s=600.0, budget=8
)


class Scripted(Planner):
    """Decides what it was told to, at which interval; it looks at nothing."""

    def __init__(self, rules: PlannerRules, moves: Mapping[int, Sequence[Move]]) -> None:
        super().__init__(rules, told())
        self.seen: list[Observation] = []
        self._moves = moves

    def decide(self, seen: Observation) -> Decision:
        self.seen.append(seen)
        return Decision(
            at=seen.at,
            target=(),
            wanted=(),
            moves=tuple(self._moves.get(len(self.seen), ())),
            expected_per_s=0.0,
            reason="it is in the script",
            ask_again_at=seen.at + RULES.interval_s,
        )


class Blind(Planner):
    """Sees what is over, and no queue."""

    def decide(self, seen: Observation) -> object:  # pyright: ignore
        pools = tuple(
            replace(pool, held=0, queued=0, queued_tokens=0, running=0, busy_s=0)
            for pool in seen.pools
        )
        return super().decide(replace(seen, pools=pools))


def told(times: Times = TIMES) -> dict[Role, Capacity]:
    """What a planner believes of workers."""
    return {role: Capacity(times, KV_TOKENS, 64) for role in (PREFILL, DECODE)}


def pool(role: Role, workers: int) -> Pool:
    return Pool(
        name=role.value,
        role=role,
        workers=workers,
        step_time=TIMES,
        phases=TIMES,
        kv_tokens=KV_TOKENS,
    )


@dataclass
class Run:
    """A fleet that is steered; `run` lets it go on until all calls are over."""

    counts: tuple[int, int]
    per_s: float
    seconds: float
    planner: Planner
    rules: PlannerRules = RULES
    advisory: bool = False
    burst: tuple[float, int] = (0.0, 0)
    """At which second how many come at once, beside the others."""
    store: StorePlan | None = None
    faults: FaultPlan = field(default_factory=lambda: FaultPlan(0))
    seed: int = 7
    """Of the arrivals."""
    records: list[CallRecord] = field(default_factory=list)
    fleet: Fleet = field(init=False)
    steering: Steering = field(init=False)

    def __post_init__(self) -> None:
        config = build(
            {
                "kv": {"block_tokens": 64, "page_tokens": 64, "prefix_cache": False},
                "scheduler": {"max_batched_tokens": 1024, "max_num_seqs": 64, "max_queue": 60000},
                "cluster": {"heartbeat_s": 0.5, "lost_after_s": 5.0},
                "router": {"ttft_s": SLO.ttft_s, "tpot_s": SLO.tpot_s, "max_held": 60000},
            }
        )
        link = LinkTime(setup_s=0.001, bytes_per_s=1e9)
        spec = FleetSpec(
            pools=tuple(map(pool, (PREFILL, DECODE), self.counts)),
            config=config,
            expected=Expected(TIMES, link),
            transfer=link,
            kv_bytes_per_token=1000,
            max_model_len=512,
            faults=self.faults,
            store=self.store,
        )
        users = UserRules(slos=(("", SLO),), max_tokens=ANSWER, all_stamps=False)
        sessions = arrivals(self.per_s, self.seconds, *self.burst, seed=self.seed)
        self.fleet = Fleet(spec, sessions, users, self.records.append)
        templates = {role: pool(role, 1) for role in (PREFILL, DECODE)}
        self.steering = Steering(
            self.fleet,
            self.rules,
            templates,
            self.planner,
            flip_s=2.0,
            drain_s=20.0,
            advisory=self.advisory,
        )

    def run(self) -> "Run":
        self.fleet.run()
        return self

    @property
    def met(self) -> float:
        """Share of the calls within both targets."""
        return Attainment.of(self.records, (("", SLO),)).both().value

    @property
    def turns(self) -> int:
        """Changes of direction, of the pool with most of them."""
        found: list[int] = []
        for role in (PREFILL, DECODE):
            counts = [sizes[role] for _, sizes in self.steering.sizes]
            signs = [after > before for before, after in pairwise(counts) if after != before]
            found.append(sum(one != other for one, other in pairwise(signs)))
        return max(found)


def slow_when_new(run: Run, factor: float, seconds: float) -> None:
    """Workers that join take so many times as long at first."""
    start: Callable[[WorkerId, Pool], None] = run.fleet.start_worker

    def started(id: WorkerId, pool: Pool) -> None:
        start(id, pool)
        process = run.fleet.cluster.workers[id].process
        life = process.lives
        process.slow_down(factor)
        run.fleet.at(run.fleet.users.now + seconds, lambda: process.speed_up(factor, life))

    run.fleet.start_worker = started


def arrivals(
    per_s: float, seconds: float, burst_at: float = 0.0, burst: int = 0, *, seed: int = 7
) -> Iterator[TokenSession]:
    """Poisson arrivals of equal calls that share no block; and so many more at one time."""
    for number, at in enumerate(merge(_times(per_s, seconds, seed), [burst_at] * burst)):
        prompt = (1 + number % 997, 1 + number // 997, *range(3, PROMPT + 1))
        yield TokenSession(at, number, (TokenTurn((prompt,), ANSWER),))


def _times(per_s: float, seconds: float, seed: int) -> Iterator[float]:
    draws, at, number = Draws(seed), 0.0, 0
    while True:
        at -= log(1 - draws.fraction(number)) / per_s
        if at >= seconds:
            return
        yield at
        number += 1
