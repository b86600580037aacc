"""Placements to compare in a benchmark, and what is found of each."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from antiphon.core.goodput import GOAL, Goodput
from antiphon.core.placement import Candidate, Colocated, Instance, Split
from antiphon.perf.hardware import ModelShape, device_of, shape_of
from antiphon.perf.published_times import published_times
from antiphon.sim.placing import (
    PhaseBounds,
    PlacementCase,
    TrialEffort,
    UsersAtRate,
    WorkerKind,
    call_shape,
)
from antiphon.types import Slo


def opt_13b(kv_tokens: int | None = None) -> tuple[WorkerKind, ...]:
    """OPT-13B on 1, 2 and 4 A100 by DistServe's coefficients; `kv_tokens`: of each worker.

    None: what fits. That is published for one device; what two and four have follows from it: their
    memory, less one copy of the weights.
    """
    a100, shape = device_of("a100"), shape_of("opt-13b")
    weights = round(shape.parameters * 2 / kv_bytes(shape))
    found: list[WorkerKind] = []
    for tensor in (1, 2, 4):
        for pipeline in (1, 2):
            if tensor * pipeline > 4:
                continue
            devices = tensor * pipeline
            one = published_times("opt-13b", 1).kv_tokens or 0
            times = replace(published_times("opt-13b", tensor), pipeline=pipeline)
            found.append(
                WorkerKind(
                    Instance(device="a100", tensor=tensor, pipeline=pipeline),
                    times,
                    kv_tokens or devices * (one + weights) - weights,
                    devices * a100.price_per_hour,
                    devices * a100.network_bytes_per_s,
                    devices * a100.peer_bytes_per_s,
                )
            )
    return tuple(found)


def kv_bytes(shape: ModelShape) -> int:
    return shape.layers * shape.kv_values_per_token * 2


def pair(prefill: Instance, decode: Instance, x: int = 1, y: int = 1, **more: bool) -> Split:
    return Split(
        prefill=prefill,
        prefill_workers=x,
        decode=decode,
        decode_workers=y,
        step_tokens=2048,
        **more,
    )


def mixed(instance: Instance, tokens: int, *, first: bool = False, workers: int = 1) -> Colocated:
    return Colocated(instance=instance, workers=workers, step_tokens=tokens, prefill_first=first)


@dataclass(frozen=True)
class Found:
    """A candidate's goodput; `beaten_at`: not searched, as it fails there."""

    name: str
    devices: int
    rates_per_s: tuple[float, ...] = ()
    beaten_at: float | None = None
    attained: float | None = None

    @property
    def per_device(self) -> float | None:
        return median(self.rates_per_s) / self.devices if self.rates_per_s else None

    @property
    def text(self) -> str:
        if self.per_device is None:
            return f"< {(self.beaten_at or 0) / self.devices:.2f}"
        low, high = (end(self.rates_per_s) / self.devices for end in (min, max))
        return f"{self.per_device:.2f}" + (f" ({low:.2f}–{high:.2f})" if high > low else "")

    def row(self) -> dict[str, object]:
        return {
            "candidate": self.name,
            "devices": self.devices,
            "goodput_per_device": self.per_device,
            "rates_per_s": self.rates_per_s,
            "beaten_at_per_s": self.beaten_at,
            "attained_there": self.attained,
        }


def bound_of(case: PlacementCase, candidate: Candidate) -> float:
    """By closed forms, without the targets for tokens where these are 0."""
    bounds = PhaseBounds(case.kinds, case.shape, case.slo, max_sequences=256)
    match candidate:
        case Colocated(instance=instance, workers=workers, step_tokens=tokens, prefill_first=first):
            return workers * bounds.mixed_per_s(instance, tokens, prefill_first=first)
        case Split():
            return min(
                candidate.prefill_workers
                * bounds.prefill_per_s(candidate.prefill, candidate.step_tokens),
                candidate.decode_workers * bounds.decode_per_s(candidate.decode),
            )


def find(case: PlacementCase, candidate: Candidate, seeds: int) -> Found:
    start = 0.6 * bound_of(case, candidate) or 0.1
    rates: list[float] = []
    for seed in range(seeds):
        found: Goodput = case.goodput(candidate, seed, start)
        rates.append(found.rate_per_s)
        start = found.rate_per_s or start
    return Found(candidate.text, candidate.devices, tuple(rates))


def best_of(case: PlacementCase, candidates: Sequence[Candidate], seeds: int) -> list[Found]:
    """Each in turn has to hold the rate of the best so far; the best one comes first."""
    best: Found | None = None
    beaten: list[Found] = []
    bounds = {one: bound_of(case, one) / one.devices for one in candidates}
    for candidate in sorted(candidates, key=lambda one: -bounds[one]):
        target = 0.0 if best is None else (best.per_device or 0.0) * candidate.devices
        if target > 1.15 * bounds[candidate] * candidate.devices:
            continue  # its bound, and what means may hide, are below the best
        if target:
            share = case.holds(candidate, 0, target).both().value
            if share < GOAL:
                beaten.append(Found(candidate.text, candidate.devices, (), target, share))
                continue
        found = find(case, candidate, seeds)
        if best is None or (found.per_device or 0.0) > (best.per_device or 0.0):
            best, found = found, best
        if found is not None:
            beaten.append(found)
    return [*([best] if best else []), *beaten]


def side_by_side(jobs: Sequence[Callable[[], object]], processes: int) -> Iterator[object]:
    """The answers of all jobs, in their order."""
    if processes == 1:
        yield from (job() for job in jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_do, jobs)


def _do(job: Callable[[], object]) -> object:
    return job()


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
