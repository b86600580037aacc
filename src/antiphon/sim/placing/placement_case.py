"""What a placement is judged for: who calls, what is in time, what there is to place on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from antiphon.core.config import build
from antiphon.core.costs import PhaseTime
from antiphon.core.goodput import (
    Attainment,
    Goodput,
    GoodputSearch,
    RunAt,
    SearchRules,
)
from antiphon.core.placement import Candidate, Colocated, Instance, Look, Split
from antiphon.perf.transfer_time import LinkTime
from antiphon.types import CallRecord, Role, Seconds, Slo

from ..fleet import Fleet, FleetSpec, Pool, TokenSession, UserRules
from ..role_phases import RolePhases
from ..virtual_cluster import Expected
from .lost_run import RunIsLost, is_lost, most_calls
from .users_at_rate import CallShape, UsersAtRate
from .worker_times import WorkerKind

MAX_SEQUENCES = 256
_PAGE_TOKENS = 64
_PATIENCE = 3.0
"""Users give up after so many times what they would wait if all were just in time."""
_LOWEST, _HIGHEST = 1 / 64, 8.0
"""Of the rate where a search begins: between what it stays."""
_WIDE, _NARROW = 1.5, 1.1
"""The first step of a search: where only a bound is known, and where the goodput nearly is."""

Judge = Callable[[tuple[CallRecord, ...], Slo, Seconds], Attainment]


@dataclass(frozen=True, slots=True)
class TrialEffort:
    """How exactly a goodput is found.

    A run lasts `run_s` at least, as long as `lives` usual calls after each other, and long enough
    for `least_calls`; the bracket ends within `tolerance`. `runs_per_rate` above 1 repeats rates
    that are close.
    """

    run_s: Seconds = 10.0
    least_calls: int = 300
    tolerance: float = 0.05
    runs_per_rate: int = 1
    most_runs: int = 10
    lives: float = 1.0


GLANCE = TrialEffort(run_s=5.0, least_calls=100, tolerance=0.1, lives=0.5)
"""A third of the calls, and half the precision, for half the time or less."""


def jointly(records: tuple[CallRecord, ...], slo: Slo, warmup_s: Seconds) -> Attainment:
    """Goodput as everywhere: calls that meet both targets."""
    return Attainment.of(records, (("", slo),), warmup_s=warmup_s)


@dataclass(frozen=True, kw_only=True)
class PlacementCase:
    """Judges candidates in the fleet simulator. Equal cases judge equally.

    `shape`: of the calls of `users`. `transfer_free`: KV is handed over in no time. `within_node`:
    it stays in one node. `effort`, `glance`: of the two looks at a candidate. `judge`: what counts
    as met; a call that it counts as missed stays missed, whatever other calls come to.
    """

    users: UsersAtRate
    shape: CallShape
    slo: Slo
    kinds: tuple[WorkerKind, ...]
    kv_bytes_per_token: int
    within_node: bool = False
    transfer_free: bool = False
    effort: TrialEffort = TrialEffort()
    glance: TrialEffort = GLANCE
    judge: Judge = jointly

    def looking(self, look: Look) -> "PlacementCase":
        """The same case, with the effort of that look."""
        return self if look is Look.FULL else replace(self, effort=self.glance)

    @cached_property
    def _kinds(self) -> dict[Instance, WorkerKind]:
        return {kind.instance: kind for kind in self.kinds}

    @property
    def run_s(self) -> Seconds:
        """How long a run lasts at least: an overload must have time to show in what is late."""
        effort = self.effort
        return max(effort.run_s, 6 * self.slo.ttft_s, effort.lives * self._life_s)

    @property
    def warmup_s(self) -> Seconds:
        """Until as many answers end as begin."""
        return min(self._life_s, 60.0)

    @property
    def _life_s(self) -> Seconds:
        """Of the usual call that is just in time."""
        return self.slo.ttft_s + self.shape.output * self.slo.tpot_s

    # ── judging ──────────────────────────────────────────────────────────────────────────────

    def holds(self, candidate: Candidate, seed: int, calls_per_s: float) -> Attainment:
        """How many calls are in time at that rate, of one run.

        A run in which too few can be ends when that is certain: then it is of the calls that were
        over, or late, by then.
        """
        warmup_s = self.warmup_s
        duration_s = warmup_s + max(self.run_s, self.effort.least_calls / calls_per_s)
        sessions = tuple(self.users.sessions(calls_per_s, seed, duration_s))
        most = most_calls(sessions, warmup_s)

        def look(fleet: Fleet, records: Sequence[CallRecord]) -> None:
            known = (*records, *fleet.users.late(self.slo.ttft_s))
            attained = self.judge(known, self.slo, warmup_s)
            if is_lost(attained, most):
                raise RunIsLost(attained)

        try:
            records = self._play(candidate, sessions, look)
        except RunIsLost as lost:
            return lost.attained
        return self.judge(records, self.slo, warmup_s)

    def goodput(
        self, candidate: Candidate, seed: int, start_per_s: float, *known: tuple[float, Attainment]
    ) -> Goodput:
        """The highest rate at which enough calls are in time. `known`: rates run already.

        Between 1/64 and 8 times `start_per_s`.
        """
        growth = _NARROW if known else _WIDE
        return self._goodput(candidate, seed, start_per_s, growth, known)

    def goodput_near(self, candidate: Candidate, seed: int, near_per_s: float) -> Goodput:
        """The same where it is known to lie about there."""
        return self._goodput(candidate, seed, near_per_s, _NARROW, ())

    def _goodput(
        self,
        candidate: Candidate,
        seed: int,
        start_per_s: float,
        growth: float,
        known: Sequence[tuple[float, Attainment]],
    ) -> Goodput:
        effort = self.effort
        search = GoodputSearch(
            SearchRules(
                tolerance=effort.tolerance,
                start_per_s=start_per_s,
                lowest_per_s=start_per_s * _LOWEST,
                highest_per_s=start_per_s * _HIGHEST,
                growth=growth,
                run_s=self.run_s,
                longest_run_s=max(self.run_s, effort.least_calls / (start_per_s * _LOWEST)),
                least_calls=effort.least_calls,
                runs_per_rate=effort.runs_per_rate,
                most_runs=effort.most_runs,
                devices=candidate.devices,
            )
        )
        for rate_per_s, attainment in known:
            search.observe(rate_per_s, attainment)
        runs: dict[float, int] = {}
        while isinstance(step := search.next(), RunAt):
            number = runs[step.rate_per_s] = runs.get(step.rate_per_s, -1) + 1
            attainment = self.holds(
                candidate, seed * effort.runs_per_rate + number, step.rate_per_s
            )
            search.observe(step.rate_per_s, attainment)
        return step

    def records(
        self, candidate: Candidate, calls_per_s: float, seed: int, duration_s: Seconds
    ) -> tuple[CallRecord, ...]:
        """What each call saw, of one run."""
        sessions = self.users.sessions(calls_per_s, seed, duration_s)
        return self._play(candidate, sessions, lambda _fleet, _records: None)

    def _play(
        self,
        candidate: Candidate,
        sessions: Iterable[TokenSession],
        look: Callable[[Fleet, Sequence[CallRecord]], None],
    ) -> tuple[CallRecord, ...]:
        """`look` is asked now and then, and may raise to end the run."""
        records: list[CallRecord] = []
        fleet = Fleet(self.fleet(candidate), iter(sessions), self.rules, records.append)
        fleet.run(on_progress=lambda _now: look(fleet, records))
        return tuple(records)

    @property
    def rules(self) -> UserRules:
        """How users call: none waits much longer than if all were just in time."""
        most_s = self.slo.ttft_s + self.shape.longest_output * self.slo.tpot_s
        return UserRules(
            slos=(("", self.slo),),
            max_tokens=self.shape.longest_output,
            patience_s=_PATIENCE * most_s,
            all_stamps=False,
        )

    # ── fleets ───────────────────────────────────────────────────────────────────────────────

    def fleet(self, candidate: Candidate) -> FleetSpec:
        """The candidate's workers, configured as a live cluster of it would be."""
        pools = tuple(
            self._pool(role, self._kinds[instance], workers)
            for role, (instance, workers) in zip(_roles(candidate), candidate.pools, strict=True)
        )
        link = self._link(candidate)
        return FleetSpec(
            pools=pools,
            config=build(
                {
                    **cluster_values(candidate, self.slo),
                    "kv": {"page_tokens": _PAGE_TOKENS, "block_tokens": _PAGE_TOKENS},
                }
            ),
            expected=Expected(self._phases(candidate), link),
            transfer=link,
            kv_bytes_per_token=self.kv_bytes_per_token,
            max_model_len=self.shape.longest + self.shape.longest_output + 1,
        )

    def _pool(self, role: Role, kind: WorkerKind, workers: int) -> Pool:
        return Pool(
            name=role.value,
            role=role,
            workers=workers,
            step_time=kind.times,
            phases=kind.times,
            kv_tokens=kind.kv_tokens,
            devices=kind.instance.devices,
        )

    def _phases(self, candidate: Candidate) -> PhaseTime:
        first, *rest = (self._kinds[instance].times for instance, _ in candidate.pools)
        return RolePhases(first, rest[0]) if rest else first

    def _link(self, candidate: Candidate) -> LinkTime:
        """As fast as the slower end."""
        if self.transfer_free:
            return LinkTime(setup_s=0.0, bytes_per_s=1e18)
        ends = [self._kinds[instance] for instance, _ in candidate.pools]
        rates = [end.node_bytes_per_s if self.within_node else end.link_bytes_per_s for end in ends]
        return LinkTime(setup_s=_SETUP_S, bytes_per_s=min(rates))


_SETUP_S: Seconds = 0.002
"""Of a hand-over: messages and reservation."""


def cluster_values(candidate: Candidate, slo: Slo) -> Mapping[str, Mapping[str, Any]]:
    """What a configuration says of this placement: the tables of a `cluster.toml`."""
    match candidate:
        case Colocated(workers=workers):
            cluster = {"mixed": workers}
        case Split(prefill_workers=prefill, decode_workers=decode):
            cluster = {"prefill": prefill, "decode": decode}
    scheduler: dict[str, Any] = {
        "max_batched_tokens": max(candidate.step_tokens, MAX_SEQUENCES),
        "max_num_seqs": MAX_SEQUENCES,
    }
    router: dict[str, Any] = {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}
    match candidate:
        case Colocated(prefill_first=True):
            scheduler["prefill_first"] = True
        case Split(conditional=conditional):
            router["conditional_split"] = conditional
        case _:
            pass
    return {"cluster": cluster, "scheduler": scheduler, "router": router}


def _roles(candidate: Candidate) -> tuple[Role, ...]:
    match candidate:
        case Colocated():
            return (Role.MIXED,)
        case Split():
            return (Role.PREFILL, Role.DECODE)
