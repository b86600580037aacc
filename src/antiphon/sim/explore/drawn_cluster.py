"""Clusters under faults, drawn from a seed: what runs, who calls, and what goes wrong.

A family says what may be asked of the outcome.
"""

from dataclasses import replace
from enum import StrEnum

from antiphon.core.draws import Draws
from antiphon.core.faults import (
    COPYING,
    DISHONEST,
    HONEST,
    STORING,
    Boundary,
    FaultPlan,
    Kind,
    Mix,
    Node,
    plan,
)
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

from ..cluster_setup import (
    GATEWAY,
    Call,
    ClusterSetup,
    Empty,
    GiveUp,
    Stimulus,
    StoreSpec,
    WorkerSpec,
)
from ..network import Hostility

VOCAB_SIZE = 16
EOS: TokenId = 0
LONGEST_PROMPT = 40
LONGEST_OUTPUT = 20
PATIENCE_S: Seconds = 60.0
"""Longer than all faults of a plan together last."""
HOSTILE_PATIENCE_S: Seconds = 4.0
"""Where a message may get lost, only deadlines end what waits for it."""
BUSY_S: Seconds = 0.6
"""Calls come and faults begin within this time."""

_HAND_OVER = (
    Boundary.OFFER,
    Boundary.GRANT,
    Boundary.GRANT_ANSWER,
    Boundary.ADOPT,
    Boundary.TAKE,
    Boundary.TAKE_ANSWER,
    Boundary.READ,
    Boundary.ACKNOWLEDGE,
    Boundary.PULLED,
    Boundary.RENEW,
    Boundary.RELEASE,
    Boundary.ABORT,
)
_AT_HAND_OVERS = (
    *(Kind.CRASH, Kind.STALL, Kind.STALL, Kind.SLOW, Kind.PARTITION, Kind.CUT, Kind.DELAY),
    *COPYING,
)


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
    STORE = "store"
    """As honest, beside a store whose disk fills up and that loses blocks; and KV is damaged
    wherever it is copied, from worker to worker or between worker and store."""
    HANDOVER = "handover"
    """As impatient, in clusters that hand over; faults come just where KV changes hands, and last
    longer than leases. Memory is scarce."""


def setup_of(seed: int, family: Family, faults: FaultPlan | None = None) -> ClusterSetup:
    """The run of that number, with its own faults or others. Pure: the same on every machine."""
    setup = _Drawn(seed, family).setup()
    return setup if faults is None else replace(setup, faults=faults)


class _Drawn:
    def __init__(self, seed: int, family: Family) -> None:
        self._seed = seed
        self._family = family
        self._draws = Draws(seed)
        self._is_patient = family in (Family.HONEST, Family.STORE)

    def setup(self) -> ClusterSetup:
        draws = self._draws
        workers = self._workers()
        names = tuple(str(worker.id) for worker in workers)
        calls = [self._call(number) for number in range(2 + draws.below(11, "calls"))]
        block = draws.choice((2, 4, 8), "block")
        page = draws.choice([size for size in (1, 2, 4, 8) if block % size == 0], "page")
        setup = ClusterSetup(
            workers=tuple(self._sized(worker, page) for worker in workers),
            stimuli=(*calls, *self._impatience(calls, workers)),
            faults=plan(self._seed, self._mix(names)),
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
                max_queue=100 if self._is_patient else draws.choice((2, 100), "queue"),
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
        return self._beside_store(setup) if self._family is Family.STORE else setup

    def _mix(self, workers: tuple[Node, ...]) -> Mix:
        gateway_fails = self._family in (Family.GATEWAY, Family.HOSTILE)
        mix = Mix(
            nodes=(*workers, GATEWAY) if gateway_fails else workers,
            spared=() if gateway_fails else (GATEWAY,),
            faults=8,
            duration_s=BUSY_S,
            longest_s=0.8,
        )
        match self._family:
            case Family.HOSTILE:
                return replace(mix, kinds=(*HONEST, *DISHONEST))
            case Family.STORE:
                kinds = (*HONEST, *COPYING, *COPYING, *STORING, *STORING)
                return replace(mix, kinds=kinds, boundaries=tuple(Boundary), latest=20)
            case Family.HANDOVER:
                return replace(mix, kinds=_AT_HAND_OVERS, boundaries=_HAND_OVER, latest=20)
            case Family.HONEST | Family.IMPATIENT | Family.GATEWAY:
                return mix

    def _beside_store(self, setup: ClusterSetup) -> ClusterSetup:
        """Each call comes once more, a while later, and finds the store full of what it needs."""
        draws = self._draws
        again = (
            replace(one, at=one.at + BUSY_S, request=replace(one.request, id=f"{one.request.id}+"))
            for one in setup.stimuli
            if isinstance(one, Call)
        )
        store = StoreSpec(
            believed_tokens=LONGEST_PROMPT,
            lost_share=draws.choice((0.0, 0.1), "lost"),
            fetch_s=draws.choice((0.003, 0.03), "fetch"),
            groups=draws.choice((1, 4), "groups"),
            late_share=0.2,
            late_s=draws.choice((0.0, 0.3), "late"),
        )
        return replace(setup, stimuli=(*setup.stimuli, *again), store=store)

    def _workers(self) -> list[WorkerSpec]:
        draws = self._draws
        handing_over = ((1, 1, 0), (2, 1, 0), (1, 2, 0), (2, 2, 0), (1, 1, 1))
        others = () if self._family is Family.HANDOVER else ((0, 0, 2),)
        shape = draws.choice((*handing_over, *others), "shape")
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
        most = 1 if self._family is Family.HANDOVER else longest
        tokens = longest + self._draws.below(most, "memory", worker.id)
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
        if not self._is_patient and draws.below(3, name, "hurry") == 0:
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
        if self._is_patient:
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
        if self._is_patient:
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
