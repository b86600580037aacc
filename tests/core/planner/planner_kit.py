"""A plant for planners: pools as fluids, whose truth need not be what a planner was told."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from antiphon.core.planner import (
    Add,
    Capacity,
    Decision,
    Flip,
    Observation,
    Planner,
    PlannerRules,
    PoolSeen,
    Take,
)
from antiphon.types import Role, Seconds, Slo, WorkerView

SLO = Slo(ttft_s=0.5, tpot_s=0.02)
PREFILL, DECODE, MIXED = Role.PREFILL, Role.DECODE, Role.MIXED
IDLE_VIEW = WorkerView(
    running=0,
    waiting=0,
    free_pages=9,
    held_pages=0,
    cached_pages=0,
    total_pages=9,
    peak_pages=0,
    prefix_queried_tokens_total=0,
    prefix_hit_tokens_total=0,
    preemptions_total=0,
    steps_total=0,
    computed_tokens_total=0,
)


@dataclass(frozen=True)
class Times:
    """A prompt of 1000 tokens takes 0.1 s; 40 sequences of 1150 tokens decode within 20 ms."""

    token_s: float = 1e-4
    step_s: float = 0.004
    sequence_s: float = 0.0004

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return tokens * self.token_s

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return self.step_s + sequences * self.sequence_s


def capacity(devices: int = 1) -> Capacity:
    return Capacity(Times(), kv_tokens=200_000, devices=devices)


def rules(**changed: object) -> PlannerRules:
    return PlannerRules(**({"slo": SLO, "budget": 16} | changed))  # pyright: ignore


def planner(given: PlannerRules, **capacities: Capacity) -> Planner:
    kinds = {role: capacities.get(role.value, capacity()) for role in given.roles}
    return Planner(given, kinds)


def seen(at: Seconds, requests: float, *pools: PoolSeen, **changed: float) -> Observation:
    """An interval of 15 s of requests of 1000 tokens in and 300 out."""
    facts = {"seconds": 15.0, "input_tokens": 1000.0, "output_tokens": 300.0} | changed
    return Observation(at=at, requests=requests, pools=pools, **facts)  # pyright: ignore


@dataclass
class PlantPool:
    ready: int
    cold: int = 0
    pinned: int = 0
    coming_at: list[Seconds] = field(default_factory=list)
    leaving_at: list[Seconds] = field(default_factory=list)
    queue: float = 0.0


@dataclass
class Plant:
    """Prefill feeds decode. `slower`: the truth, against what planners are told.

    `shy`: workers report what they were told to be like, so that only queues tell the truth.
    """

    rules: PlannerRules
    slower: float = 1.0
    shy: bool = False
    drain_s: Seconds = 10.0
    now: Seconds = 0.0
    pools: dict[Role, PlantPool] = field(
        default_factory=lambda: {PREFILL: PlantPool(1), DECODE: PlantPool(1)}
    )
    sizes: list[dict[Role, int]] = field(default_factory=list)
    device_s: float = 0.0
    came: float = 0.0
    late: float = 0.0
    """Of those that came: in intervals at whose end some waited, or too many decoded at once."""

    def interval(self, requests: float) -> Observation:
        """So many come within an interval; what is seen at its end."""
        seconds = self.rules.interval_s
        self.now += seconds
        for pool in self.pools.values():
            pool.cold = sum(at <= self.now for at in pool.coming_at)
            pool.ready += pool.cold
            pool.coming_at = [at for at in pool.coming_at if at > self.now]
            pool.leaving_at = [at for at in pool.leaving_at if at > self.now]
        prompts, done = self._prefill(requests)
        answers = self._decode(done)
        self.device_s += seconds * self.devices
        self.came += requests
        if any(pool.queue >= 1 for pool in self.pools.values()) or self._crowded(answers):
            self.late += requests
        return seen(self.now, requests, prompts, answers, seconds=seconds)

    def _crowded(self, seen: PoolSeen) -> bool:
        """More than 40 at once take longer than the target."""
        return seen.running * self.slower > 40.5 * seen.ready

    @property
    def served(self) -> float:
        """Share of the requests that came when there were enough workers."""
        return 1 - self.late / max(1.0, self.came)

    @property
    def devices(self) -> int:
        return sum(
            pool.ready + len(pool.coming_at) + len(pool.leaving_at) for pool in self.pools.values()
        )

    def _prefill(self, requests: float) -> tuple[PoolSeen, float]:
        pool, seconds = self.pools[PREFILL], self.rules.interval_s
        each_s = 0.1 * self.slower
        done = min(pool.queue + requests, pool.ready * seconds / each_s)
        pool.queue += requests - done
        told = 1 / self.slower if self.shy else 1.0
        return self._seen(
            PREFILL, busy_s=done * each_s * told, steps=done, tokens=1000 * done, running=0.0
        ), done

    def _decode(self, requests: float) -> PoolSeen:
        pool, seconds = self.pools[DECODE], self.rules.interval_s
        places = 100.0  # beyond what meets the target
        most = seconds * places / (300 * (0.004 + 0.0004 * places) * self.slower)
        done = min(pool.queue + requests, pool.ready * most)
        pool.queue += requests - done
        share = done / seconds * 300 * self.slower / max(1, pool.ready)
        batch = min(places, share * 0.004 / max(1e-9, 1 - share * 0.0004))
        step_s = (0.004 + 0.0004 * batch) * (1.0 if self.shy else self.slower)
        return self._seen(
            DECODE,
            busy_s=pool.ready * seconds if done else 0.0,
            steps=pool.ready * seconds / step_s if done else 0.0,
            tokens=300 * done,
            running=batch * pool.ready,
        )

    def _seen(self, role: Role, **did: float) -> PoolSeen:
        pool = self.pools[role]
        return PoolSeen(
            role=role,
            ready=pool.ready,
            starting=len(pool.coming_at),
            draining=len(pool.leaving_at),
            cold=pool.cold,
            pinned=pool.pinned,
            held=pool.queue,
            **did,
        )

    def carry_out(self, decision: Decision) -> None:
        """Moves happen as they would: a move that nobody can carry out breaks off."""
        for move in decision.moves:
            match move:
                case Add(role, workers):
                    self.pools[role].coming_at += [self.now + self.rules.ready_s] * workers
                case Take(role, workers):
                    self._leave(role, workers)
                case Flip(role, to, workers):
                    self._leave(role, workers)
                    self.pools[role].leaving_at = self.pools[role].leaving_at[:-workers]
                    self.pools[to].coming_at += [self.now + self.drain_s + 5] * workers
        self.sizes.append(
            {role: pool.ready + len(pool.coming_at) for role, pool in self.pools.items()}
        )

    def _leave(self, role: Role, workers: int) -> None:
        pool = self.pools[role]
        assert workers <= pool.ready - pool.pinned, "nobody is there to take"
        pool.ready -= workers
        pool.leaving_at += [self.now + self.drain_s] * workers


def drive(
    plant: Plant, planner: Planner, load: Callable[[Seconds], float], hours: float
) -> list[Decision]:
    """`load`: requests that come in the interval that begins then."""
    decisions: list[Decision] = []
    while plant.now < hours * 3600:
        decision = planner.decide(plant.interval(load(plant.now)))
        decisions.append(decision)
        plant.carry_out(decision)
    return decisions


def noisy(per_s: float, seconds: Seconds, seed: int) -> Callable[[Seconds], float]:
    """Nearly Poisson arrivals at a constant rate: normal, of the same mean and variance."""
    chance = random.Random(seed)
    mean = per_s * seconds
    return lambda _: max(0.0, round(chance.gauss(mean, mean**0.5)))


def turns(sizes: Sequence[Mapping[Role, int]]) -> int:
    """How often the size of a pool changed its direction, of the pool where it did most often."""
    found: list[int] = []
    for role in sizes[0]:
        steps = [after[role] - before[role] for before, after in pairwise(sizes)]
        signs = [step > 0 for step in steps if step]
        found.append(sum(one != other for one, other in pairwise(signs)))
    return max(found)
