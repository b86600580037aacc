"""Placements to compare in a benchmark, and what is found of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TypeVar

from antiphon.core.goodput import GOAL, Attainment
from antiphon.core.placement import (
    Candidate,
    Instance,
    Objective,
    Promise,
    Space,
    Split,
    bound_of,
    promises,
)
from antiphon.host.process_pool import process_pool
from antiphon.perf.hardware import ModelShape, device_of, shape_of
from antiphon.perf.published_times import published_times
from antiphon.sim.fleet import Fleet
from antiphon.sim.placing import (
    MAX_SEQUENCES,
    PhaseBounds,
    PlacementCase,
    TrialEffort,
    UsersAtRate,
    WorkerKind,
    call_shape,
)
from antiphon.types import Seconds, Slo, WorkerId, WorkerView

T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """`candidates`: of each way to place, so many are simulated. `seeds`: goodputs of each."""

    trial: TrialEffort
    candidates: int
    seeds: int
    processes: int
    full: bool

    def row(self) -> dict[str, object]:
        return {
            "run_s": self.trial.run_s,
            "calls": self.trial.least_calls,
            "tolerance": self.trial.tolerance,
            "seeds": self.seeds,
            "candidates": self.candidates,
        }


# ── what there is to place on ────────────────────────────────────────────────────────────────


def opt_13b(kv_tokens: int | None = None) -> tuple[WorkerKind, ...]:
    """OPT-13B on 1, 2 and 4 A100 by DistServe's coefficients; `kv_tokens`: of each worker.

    None: what fits. That is published for one device; what two and four have follows from it: their
    memory, less one copy of the weights.
    """
    a100, shape = device_of("a100"), shape_of("opt-13b")
    weights = round(shape.parameters * 2 / kv_bytes(shape))
    found: list[WorkerKind] = []
    for tensor in (1, 2, 4):
        one = published_times("opt-13b", 1).kv_tokens or 0
        found.append(
            WorkerKind(
                Instance(device="a100", tensor=tensor),
                published_times("opt-13b", tensor),
                kv_tokens or tensor * (one + weights) - weights,
                tensor * a100.price_per_hour,
                tensor * a100.network_bytes_per_s,
                tensor * a100.peer_bytes_per_s,
            )
        )
    return tuple(found)


def kv_bytes(shape: ModelShape) -> int:
    return shape.layers * shape.kv_values_per_token * 2


def case_of(
    users: UsersAtRate, slo: Slo, kinds: tuple[WorkerKind, ...], kv_bytes: int, effort: TrialEffort
) -> PlacementCase:
    return PlacementCase(
        users=users,
        shape=call_shape(users),
        slo=slo,
        kinds=kinds,
        kv_bytes_per_token=kv_bytes,
        within_node=True,
        effort=effort,
    )


def pair(prefill: Instance, decode: Instance, x: int = 1, y: int = 1) -> Split:
    return Split(
        prefill=prefill, prefill_workers=x, decode=decode, decode_workers=y, step_tokens=2048
    )


def bounds_of(case: PlacementCase) -> PhaseBounds:
    return PhaseBounds(case.kinds, case.shape, case.slo, max_sequences=MAX_SEQUENCES)


def offers(
    case: PlacementCase,
    space: Space,
    way: Callable[[Candidate], bool],
    keep: int,
    objective: Objective = Objective.DEVICES,
) -> list[Promise]:
    """The most promising candidates that are of that way."""
    found = [one for one in promises(space, bounds_of(case), objective) if way(one.candidate)]
    return sorted(
        found, key=lambda one: (-one.worth(one.bound_per_s, objective), one.candidate.text)
    )[:keep]


# ── what is found ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class PoolUse:
    """Of one pool while a candidate serves: means over time and workers.

    `busy`: share of time in forward passes; `kv`: share of pages that requests hold; `running`:
    requests in one worker's steps.
    """

    busy: float
    kv: float
    running: float

    @property
    def text(self) -> str:
        return f"busy {self.busy:.0%}, KV held {self.kv:.0%}, {self.running:.0f} running"

    def row(self) -> dict[str, float]:
        return {"busy": self.busy, "kv_held": self.kv, "running": self.running}


@dataclass(frozen=True)
class Found:
    """A candidate's goodput; `beaten_at`: not searched, as it fails there."""

    candidate: Candidate
    rates_per_s: tuple[float, ...] = ()
    beaten_at: float | None = None
    attained: float | None = None
    pools: Mapping[str, PoolUse] = field(default_factory=dict, repr=False)
    """At its goodput."""
    others: tuple["Found", ...] = field(default=(), repr=False)
    """Of the same way, and behind it."""

    @property
    def devices(self) -> int:
        return self.candidate.devices

    @property
    def per_s(self) -> float:
        return median(self.rates_per_s) if self.rates_per_s else 0.0

    @property
    def per_device(self) -> float:
        return self.per_s / self.devices

    @property
    def text(self) -> str:
        if not self.rates_per_s:
            return f"< {(self.beaten_at or 0) / self.devices:.2f}"
        low, high = (end(self.rates_per_s) / self.devices for end in (min, max))
        return f"{self.per_device:.2f}" + (f" ({low:.2f}–{high:.2f})" if high > low else "")

    @property
    def use(self) -> str:
        """What its pools do with their devices."""
        return "; ".join(f"{name}: {use.text}" for name, use in self.pools.items())

    def row(self) -> dict[str, object]:
        return {
            "candidate": self.candidate.text,
            "devices": self.devices,
            "goodput_per_device": self.per_device if self.rates_per_s else None,
            "rates_per_s": self.rates_per_s,
            "beaten_at_per_s": self.beaten_at,
            "attained_there": self.attained,
            "pools": {name: use.row() for name, use in self.pools.items()},
            "others": [other.row() for other in self.others],
        }


def find(
    case: PlacementCase,
    candidate: Candidate,
    seeds: int,
    start_per_s: float | None = None,
    *known: tuple[float, Attainment],
) -> Found:
    """`known`: rates run with the first seed; the search begins there, or at the bound."""
    start = start_per_s or 0.75 * bound_of(bounds_of(case), candidate) or 0.1
    rates = [case.goodput(candidate, 0, start, *known).rate_per_s]
    for seed in range(1, seeds):
        rates.append(case.goodput_near(candidate, seed, rates[0] or start).rate_per_s)
    return Found(candidate, tuple(rates))


def best_of(case: PlacementCase, offered: Sequence[Promise], seeds: int) -> Found | None:
    """Each in turn has to hold the rate of the best so far; None: nothing is ever in time."""
    best: Found | None = None
    behind: list[Found] = []
    for promise in offered:
        candidate = promise.candidate
        target = 0.0 if best is None else best.per_device * candidate.devices
        if target > 1.15 * promise.bound_per_s:
            continue  # its bound, and what means may hide, are below the best
        if not target:
            found = find(case, candidate, seeds, 0.75 * promise.bound_per_s)
        else:
            attained = case.holds(candidate, 0, target)
            if (share := attained.both().value) < GOAL:
                behind.append(Found(candidate, (), target, share))
                continue
            found = find(case, candidate, seeds, target, (target, attained))
        if best is None or found.per_device > best.per_device:
            best, found = found, best
        if found is not None:
            behind.append(found)
    if best is None:
        return None
    pools = uses(case, best.candidate, best.per_s) if best.per_s else {}
    return replace(best, pools=pools, others=tuple(behind))


# ── why ──────────────────────────────────────────────────────────────────────────────────────


def uses(case: PlacementCase, candidate: Candidate, calls_per_s: float) -> dict[str, PoolUse]:
    """What each pool does with its devices at that rate, once as many calls end as begin."""
    begin_s = case.warmup_s
    end_s = begin_s + max(case.run_s, case.effort.least_calls / calls_per_s)
    sessions = case.users.sessions(calls_per_s, 0, end_s)
    fleet = Fleet(case.fleet(candidate), sessions, case.rules, lambda _: None)
    seen: list[tuple[Seconds, Mapping[WorkerId, WorkerView]]] = []

    def look(now: Seconds) -> None:
        if begin_s <= now <= end_s:
            seen.append((now, fleet.views()))

    fleet.run(on_progress=look)
    if len(seen) < 2:
        return {}
    (first_at, first), *_, (last_at, last) = seen
    found: dict[str, PoolUse] = {}
    for pool in dict.fromkeys(worker.rpartition("-")[0] for worker in first):
        workers = [worker for worker in first if worker.rpartition("-")[0] == pool]
        views = [views[worker] for _, views in seen for worker in workers]
        spent_s = sum(last[one].busy_s_total - first[one].busy_s_total for one in workers)
        found[pool] = PoolUse(
            busy=spent_s / (last_at - first_at) / len(workers),
            kv=fmean(view.held_pages / view.total_pages for view in views),
            running=fmean(view.running for view in views),
        )
    return found


# ── side by side ─────────────────────────────────────────────────────────────────────────────


def side_by_side(jobs: Sequence[Callable[[], T]], processes: int) -> Iterator[T]:
    """The answers of all jobs, in their order."""
    if processes == 1:
        yield from (job() for job in jobs)
        return
    with process_pool(processes) as pool:
        for run in [pool.submit(job) for job in jobs]:
            yield run.result()
