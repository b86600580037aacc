"""Clusters under faults, drawn from a seed: what runs, who calls, and what goes wrong.

A family says what may be asked of the outcome.
"""

from dataclasses import replace
from enum import StrEnum

from antiphon.core.draws import Draws
from antiphon.core.faults import DISHONEST, HONEST, FaultPlan, Kind, Mix, plan
from antiphon.sim import GATEWAY, Hostility
from antiphon.sim.cluster_setup import Call, ClusterSetup, Empty, GiveUp, Stimulus, WorkerSpec
from antiphon.types import (
    ClusterConfig,
    KvConfig,
    Request,
    RequestId,
    Role,
    RouterConfig,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    SequenceKey,
    TokenId,
    WorkerId,
)

from .strategies import EOS, VOCAB_SIZE

LONGEST_PROMPT = 40
LONGEST_OUTPUT = 20
PATIENCE_S: Seconds = 60.0
"""Longer than all faults of a plan together last."""
HOSTILE_PATIENCE_S: Seconds = 4.0
"""Where a message may get lost, only deadlines end what waits for it."""
BUSY_S: Seconds = 0.6
"""Calls come and faults begin within this time."""


class Family(StrEnum):
    """What may happen, and so what must come out."""

    HONEST = "honest"
    """Streams keep their promise; whoever dies comes back, and the gateway lives: with patient
    clients nothing fails."""
    IMPATIENT = "impatient"
    """Also: clients hang up and set short deadlines, stop strings come up, workers are drained."""
    GATEWAY = "gateway"
    """As impatient, and the gateway may die, stop and be slow, too."""
    HOSTILE = "hostile"
    """As gateway, and links lose, repeat and reorder messages. Only safety is promised."""


def setup_of(seed: int, family: Family, faults: FaultPlan | None = None) -> ClusterSetup:
    """The run of that number, with its own faults or others. Pure: the same on every machine."""
    setup = _Drawn(seed, family).setup()
    return setup if faults is None else replace(setup, faults=faults)


class _Drawn:
    def __init__(self, seed: int, family: Family) -> None:
        self._seed = seed
        self._family = family
        self._draws = Draws(seed)

    def setup(self) -> ClusterSetup:
        draws = self._draws
        workers = self._workers()
        names = tuple(str(worker.id) for worker in workers)
        gateway_fails = self._family in (Family.GATEWAY, Family.HOSTILE)
        mix = Mix(
            nodes=(*names, GATEWAY) if gateway_fails else names,
            spared=() if gateway_fails else (GATEWAY,),
            kinds=tuple(Kind) if self._family is Family.HOSTILE else HONEST,
            faults=8,
            duration_s=BUSY_S,
            longest_s=0.8,
        )
        calls = [self._call(number) for number in range(2 + draws.below(11, "calls"))]
        block = draws.choice((2, 4, 8), "block")
        page = draws.choice([size for size in (1, 2, 4, 8) if block % size == 0], "page")
        return ClusterSetup(
            workers=tuple(self._sized(worker, page) for worker in workers),
            stimuli=(*calls, *self._impatience(calls, workers)),
            faults=plan(self._seed, mix),
            hostility=self._hostility(),
            cluster=ClusterConfig(heartbeat_s=0.02, lost_after_s=0.1, lease_ttl_s=0.15),
            router=RouterConfig(
                policy=draws.choice(
                    ("slo", "slo", "random", "round-robin", "least-loaded"), "policy"
                ),
                hold_s=0.02,
            ),
            scheduler=SchedulerConfig(
                max_num_seqs=draws.choice((3, 4, 8), "seqs"),
                max_batched_tokens=draws.choice((4, 8, 24), "budget"),
                max_queue=100 if self._family is Family.HONEST else draws.choice((2, 100), "queue"),
                output_history=4,
                reserve_fraction=draws.choice((0.0, 0.03), "reserve"),
            ),
            kv=KvConfig(
                page_tokens=page,
                block_tokens=block,
                prefix_cache=draws.below(4, "cache") > 0,
            ),
            vocab_size=VOCAB_SIZE,
            max_model_len=LONGEST_PROMPT + LONGEST_OUTPUT,
            page_pull_s=draws.choice((0.0001, 0.002, 0.02), "pull"),
            stops=self._stops(calls),
        )

    def _workers(self) -> list[WorkerSpec]:
        draws = self._draws
        shape = draws.choice(
            ((1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 0), (1, 1, 1), (0, 0, 2)), "shape"
        )
        roles = (Role.PREFILL, Role.DECODE, Role.MIXED)
        workers: list[WorkerSpec] = []
        for role, count in zip(roles, shape, strict=True):
            for number in range(count):
                name = f"{role.value}-{number}"
                workers.append(
                    WorkerSpec(
                        id=WorkerId(name),
                        role=role,
                        step_s=draws.choice((0.001, 0.004), "step", name),
                        clock_offset_s=draws.between(-1000.0, 1000.0, "clock", name),
                    )
                )
        return workers

    def _sized(self, worker: WorkerSpec, page_tokens: int) -> WorkerSpec:
        """Memory for one to four of the longest requests."""
        longest = 3 * (LONGEST_PROMPT + LONGEST_OUTPUT)
        tokens = longest + self._draws.below(longest, "memory", worker.id)
        return WorkerSpec(
            id=worker.id,
            role=worker.role,
            pages=-(-tokens // page_tokens),
            step_s=worker.step_s,
            clock_offset_s=worker.clock_offset_s,
        )

    def _call(self, number: int) -> Call:
        draws, name = self._draws, f"r{number}"
        hostile = self._family is Family.HOSTILE
        patience_s: Seconds = HOSTILE_PATIENCE_S if hostile else PATIENCE_S
        if self._family is not Family.HONEST and draws.below(3, name, "hurry") == 0:
            patience_s = draws.choice((0.02, 0.1, 0.5), name, "patience")
        n = draws.choice((1, 1, 1, 2, 3), name, "n")
        return Call(
            at=draws.between(0.0, BUSY_S, name, "at"),
            patience_s=patience_s,
            request=Request(
                id=RequestId(name),
                prompt=self._prompt(name),
                sampling=SamplingParams(
                    n=n,
                    max_tokens=1 + draws.below(LONGEST_OUTPUT, name, "max_tokens"),
                    min_tokens=draws.choice((0, 0, 3), name, "min_tokens"),
                    stop_token_ids=draws.choice(((), (7,)), name, "stop ids"),
                    seed=draws.below(4, name, "seed"),
                ),
                eos_token_ids=draws.choice(((), (EOS,)), name, "eos"),
                priority=draws.choice((0, 0, 1), name, "priority"),
                tenant_salt=draws.choice((b"", b"", b"other"), name, "salt"),
            ),
        )

    def _prompt(self, name: str) -> tuple[TokenId, ...]:
        draws = self._draws
        prefix = draws.choice(((), (1, 2, 3, 4) * 3, (1, 2, 3, 4) * 6, (5,) * 17), name, "prefix")
        own = 1 + draws.below(12, name, "own")
        tokens = (*prefix, *(1 + draws.below(3, name, "token", at) for at in range(own)))
        return tokens[:LONGEST_PROMPT]

    def _impatience(self, calls: list[Call], workers: list[WorkerSpec]) -> list[Stimulus]:
        if self._family is Family.HONEST:
            return []
        draws = self._draws
        stimuli: list[Stimulus] = []
        for call in calls:
            name = call.request.id
            if draws.below(3, name, "gives up") == 0:
                which = draws.choice((None, 0, call.request.sampling.n - 1), name, "which")
                at = call.at + draws.choice((0.0005, 0.004, 0.01, 0.03, 0.1), name, "after")
                stimuli.append(GiveUp(at=at, request=name, sequence=which))
        if len(workers) > 1 and draws.below(4, "drain") == 0:
            worker = draws.choice(workers, "drained")
            timeout_s = draws.choice((0.0, 0.02, 1.0), "drain timeout")
            at = draws.between(0.0, BUSY_S, "drain at")
            stimuli.append(Empty(at=at, worker=worker.id, timeout_s=timeout_s))
        return stimuli

    def _stops(self, calls: list[Call]) -> dict[SequenceKey, int]:
        if self._family is Family.HONEST:
            return {}
        draws = self._draws
        keys = [
            SequenceKey(call.request.id, sequence)
            for call in calls
            for sequence in range(call.request.sampling.n)
        ]
        return {
            key: draws.below(6, "stop at", *key)
            for key in keys
            if draws.below(5, "stops", *key) == 0
        }

    def _hostility(self) -> Hostility:
        if self._family is not Family.HOSTILE:
            return Hostility()
        chances = [self._draws.choice((0.0, 0.01, 0.05), kind) for kind in DISHONEST]
        return Hostility(drop=chances[0], duplicate=chances[1], reorder=chances[2])
