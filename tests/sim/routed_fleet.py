"""Small fleets under calls that are hard to route, once for each policy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import fmean

from antiphon.core.config import build
from antiphon.core.faults import FaultPlan, ProcessFault
from antiphon.core.goodput import ttft_s
from antiphon.perf import LinkTime
from antiphon.sim.fleet import Fleet, FleetSpec, Pool, TokenSession, TokenTurn, UserRules
from antiphon.sim.virtual_cluster import Expected
from antiphon.types import CallRecord, Role, Seconds, StepPlan, WorkerId

POLICIES = ("random", "round-robin", "least-loaded", "prefix-gated", "overlap-cost", "slo")
BASELINES = POLICIES[:-1]
LINK = LinkTime(setup_s=0.001, bytes_per_s=1e9)


@dataclass(frozen=True)
class LinearDevice:
    """2 ms a step, 0.2 ms a token of a prompt, 0.2 ms a sequence that decodes."""

    slow: float = 1.0

    def seconds(self, plan: StepPlan) -> Seconds:
        return self.slow * (2e-3 + 2e-4 * sum(len(chunk.tokens) for chunk in plan.chunks))

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        return passes * self.seconds(plan)

    def lag_s(self, plan: StepPlan) -> Seconds:
        return 0.0

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        return 2e-3 * -(-tokens // 512) + 2e-4 * tokens

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        return 2e-3 + 2e-4 * sequences


@dataclass(frozen=True)
class Call:
    at_s: Seconds
    prompt: tuple[int, ...]
    output_tokens: int = 16


@dataclass(frozen=True)
class Outcome:
    """`busy_s`: of each worker."""

    records: Sequence[CallRecord]
    busy_s: dict[WorkerId, float]

    @property
    def mean_s(self) -> float:
        """To the first token."""
        assert all(record.error is None for record in self.records)
        return fmean(ttft for record in self.records if (ttft := ttft_s(record)) is not None)

    @property
    def hit_share(self) -> float:
        cached = sum(record.cached_tokens or 0 for record in self.records)
        return cached / sum(record.prompt_tokens or 0 for record in self.records)

    def unevenness(self, beginning: str = "") -> float:
        """Work of the busiest over the mean, of the workers whose names begin so."""
        busy = [one for id, one in self.busy_s.items() if id.startswith(beginning)]
        return max(busy) / fmean(busy)


@dataclass(frozen=True)
class Plant:
    """Who works there. `slow`: how many times as slow the first worker is than it is taken for."""

    roles: tuple[tuple[Role, int], ...] = ((Role.MIXED, 8),)
    heartbeat_s: Seconds = 0.25
    slow: float = 1.0
    faults: tuple[ProcessFault, ...] = ()
    kv_tokens: int = 65_536

    def play(self, policy: str, calls: tuple[Call, ...], *, seed: int = 0) -> Outcome:
        """One run; whoever asks for it again gets the same."""
        return _played(self, policy, calls, seed)

    def _play(self, policy: str, calls: tuple[Call, ...], seed: int) -> Outcome:
        config = build(
            {
                "router": {"policy": policy, "ttft_s": 1.0, "tpot_s": 0.1},
                "cluster": {
                    "heartbeat_s": self.heartbeat_s,
                    "lost_after_s": 20 * self.heartbeat_s,
                },
            }
        )
        spec = FleetSpec(
            pools=tuple(self._pools()),
            config=config,
            expected=Expected(LinearDevice(), LINK),
            transfer=LINK,
            kv_bytes_per_token=1000,
            max_model_len=8192,
            faults=FaultPlan(seed, self.faults),
        )
        records: list[CallRecord] = []
        fleet = Fleet(spec, _sessions(calls), UserRules(), records.append)
        fleet.run()
        assert len(records) == len(calls)
        busy = {id: view.busy_s_total for id, view in fleet.views().items()}
        return Outcome(records, busy)

    def _pools(self) -> Iterator[Pool]:
        normal = LinearDevice()
        for role, workers in self.roles:
            slow = int(self.slow != 1.0)
            for name, number, device in (
                (f"slow-{role}", slow, LinearDevice(self.slow)),
                (f"{role}", workers - slow, normal),
            ):
                if number:
                    yield Pool(
                        name=name,
                        role=role,
                        workers=number,
                        step_time=device,
                        phases=normal,
                        kv_tokens=self.kv_tokens,
                    )


@cache
def _played(plant: Plant, policy: str, calls: tuple[Call, ...], seed: int) -> Outcome:
    return plant._play(policy, calls, seed)


def means(plant: Plant, loads: Sequence[tuple[Call, ...]]) -> dict[str, float]:
    """Mean time to the first token under each policy, over all loads."""
    return {
        policy: fmean(plant.play(policy, load, seed=seed).mean_s for seed, load in enumerate(loads))
        for policy in POLICIES
    }


def poisson(seed: int, rate_per_s: float, number: int) -> Iterator[tuple[Seconds, Random]]:
    """Times, and chance for what is asked at each."""
    draw, now = Random(seed), 0.0
    for _ in range(number):
        now += draw.expovariate(rate_per_s)
        yield now, draw


def own(draw: Random, tokens: int) -> tuple[int, ...]:
    """What nobody else has."""
    return tuple(draw.randrange(1, 1000) for _ in range(tokens))


def _sessions(calls: tuple[Call, ...]) -> Iterator[TokenSession]:
    for number, call in enumerate(calls):
        yield TokenSession(call.at_s, number, (TokenTurn((call.prompt,), call.output_tokens),))
