"""Placement: DistServe's own table, split against colocated, and two kinds of devices (Splitwise).

    .venv/bin/python benchmarks/placement.py distserve     OPT-13B on 4 A100, with its coefficients
    .venv/bin/python benchmarks/placement.py ratio         split : colocated for three applications
    .venv/bin/python benchmarks/placement.py splitwise     H100 and A100 on the Azure traces
    … --processes 2 --calls 300 --seeds 1

Each part writes a JSON file to `results/` and prints its table. All goodputs are simulated with the
live router, scheduler and hand-over; the times of steps are DistServe's where the model is OPT-13B,
and `perf`'s roofline elsewhere.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from support import result

from antiphon.core.goodput import GOAL, Attainment, Goodput
from antiphon.core.placement import Candidate, Colocated, Instance, Split
from antiphon.perf.hardware import DEVICES, Device, ModelShape, device_of, shape_of
from antiphon.perf.published_times import published_times
from antiphon.sim.fleet import TokenSession, TraceLoad, trace_sessions
from antiphon.sim.placing import (
    CallShape,
    Hardware,
    PhaseBounds,
    PlacementCase,
    TrialEffort,
    UsersAtRate,
    WorkerKind,
    WorkloadUsers,
    call_shape,
    jointly,
)
from antiphon.types import CallRecord, Seconds, Slo
from antiphon.workload import parse_workload, read_azure

TRACES = Path(__file__).resolve().parents[2] / "shared/traces"
CONTEXT = "max_context=2048"
LENGTHS = {
    "ShareGPT-like": f"chat:{CONTEXT}",
    "narrower": f"chat:input=lognormal:mean=756,sd=400,output=lognormal:mean=200,sd=90,{CONTEXT}",
    "shorter prompts": "chat:input=lognormal:mean=350,sd=370,min=4,"
    f"output=lognormal:mean=200,sd=180,min=4,{CONTEXT}",
    "fixed": f"fixed:input=756,output=200,{CONTEXT}",
}
"""Mean lengths of DistServe's figure 7; its paper gives no deviation, so that is varied."""
PLENTY = 2_000_000
"""Tokens of KV that no run here needs."""
THEIR_CAP = 50_000
"""Tokens that DistServe's simulator lets one worker decode at once, whatever its memory."""


# ── what is compared ─────────────────────────────────────────────────────────────────────────


def separately(records: tuple[CallRecord, ...], slo: Slo, warmup_s: Seconds) -> Attainment:
    """DistServe's search: 90 % in time for the first token, and 90 % per token, each by itself."""
    both = jointly(records, slo, warmup_s)
    return replace(both, met=min(both.ttft_met, both.tpot_met), batches=())


def opt_13b(kv_tokens: int | None = None) -> tuple[WorkerKind, ...]:
    """OPT-13B on 1, 2 and 4 A100 by DistServe's coefficients; `kv_tokens`: of each worker.

    None: what fits. That is published for one device; what two and four have follows from it: their
    memory, less one copy of the weights.
    """
    a100, shape = device_of("a100"), shape_of("opt-13b")
    weights = round(shape.parameters * 2 / _kv_bytes(shape))
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


def _kv_bytes(shape: ModelShape) -> int:
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


# ── measuring ────────────────────────────────────────────────────────────────────────────────


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


# ── DistServe's table ────────────────────────────────────────────────────────────────────────


def case_of(
    users: UsersAtRate, slo: Slo, kinds: tuple[WorkerKind, ...], kv_bytes: int, calls: int
) -> PlacementCase:
    return PlacementCase(
        users=users,
        shape=call_shape(users),
        slo=slo,
        kinds=kinds,
        kv_bytes_per_token=kv_bytes,
        within_node=True,
        effort=TrialEffort(least_calls=calls),
    )


@dataclass(frozen=True)
class Mode:
    """How a goodput is found. `kv_tokens`: of each worker; None: what fits."""

    name: str
    joint: bool
    transfer: bool
    kv_tokens: int | None

    def case(self, lengths: str, calls: int) -> PlacementCase:
        case = case_of(
            WorkloadUsers(parse_workload(LENGTHS[lengths])),
            Slo(ttft_s=0.2, tpot_s=0.1),
            opt_13b(self.kv_tokens),
            _kv_bytes(shape_of("opt-13b")),
            calls,
        )
        judge = jointly if self.joint else separately
        return replace(case, transfer_free=not self.transfer, judge=judge)


THEIRS = Mode("theirs: separate P90, no transfer, 50,000 tokens", False, False, THEIR_CAP)
OURS = Mode("joint 90 %, transfer over NVLink, KV that fits", True, True, None)
BETWEEN = (
    Mode("separate P90, no transfer, no KV limit", False, False, PLENTY),
    Mode("joint 90 %, no transfer, 50,000 tokens", True, False, THEIR_CAP),
    Mode("joint 90 %, no transfer, KV that fits", True, False, None),
)


def distserve(options: argparse.Namespace) -> dict[str, object]:
    one, two = (Instance(device="a100", tensor=tensor) for tensor in (1, 2))
    best = pair(two, one)
    pairs = [best, pair(one, one), pair(two, two), pair(one, two)]
    what = [("ShareGPT-like", THEIRS, candidate) for candidate in pairs]
    what += [("ShareGPT-like", OURS, candidate) for candidate in pairs]
    what += [("ShareGPT-like", mode, best) for mode in BETWEEN]
    what += [(lengths, THEIRS, best) for lengths in list(LENGTHS)[1:]]
    what += [("ShareGPT-like", OURS, pair(one, one, n, 1)) for n in (2, 3)]
    jobs = [
        partial(find, mode.case(lengths, options.calls), candidate, options.seeds)
        for lengths, mode, candidate in what
    ]
    rows: list[dict[str, object]] = []
    kept = {"lengths": LENGTHS, "claim": "1.56 per GPU at prefill TP2, decode TP1", "rows": rows}
    for (lengths, mode, _), found in zip(what, side_by_side(jobs, options.processes), strict=True):
        assert isinstance(found, Found)
        print(f"{lengths:16} {mode.name:50} {found.name:42} {found.text}", flush=True)
        rows.append({"lengths": lengths, "mode": mode.name, **found.row()})
        result.write("placement_distserve", kept)
    return kept


# ── split against colocated ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Application:
    """A row of DistServe's table 1."""

    name: str
    model: str
    workload: str
    slo: Slo
    tensor: tuple[int, ...]


APPLICATIONS = (
    Application("chat", "opt-13b", f"chat:{CONTEXT}", Slo(ttft_s=0.25, tpot_s=0.1), (1, 2)),
    Application("code", "opt-66b", f"code:{CONTEXT}", Slo(ttft_s=0.125, tpot_s=0.2), (4,)),
    Application("summarise", "opt-66b", f"summarise:{CONTEXT}", Slo(ttft_s=15, tpot_s=0.15), (4,)),
)


def application_case(one: Application, calls: int) -> PlacementCase:
    shape = shape_of(one.model)
    if one.model == "opt-13b":
        kinds = opt_13b()
    else:
        kinds = Hardware(model=shape, devices=(device_of("a100"),), most_devices=8).kinds(4096)
    users = WorkloadUsers(parse_workload(one.workload))
    return case_of(users, one.slo, kinds, _kv_bytes(shape), calls)


def ways(one: Application) -> dict[str, list[Candidate]]:
    instances = [Instance(device="a100", tensor=tensor) for tensor in one.tensor]
    numbers = ((1, 1), (2, 1), (1, 2))
    splits = [
        (prefill, decode, *number)
        for prefill in instances
        for decode in instances
        for number in numbers
    ]
    return {
        "colocated, prefill first": [mixed(instance, 2048, first=True) for instance in instances],
        "colocated, chunked": [
            mixed(instance, tokens) for instance in instances for tokens in (256, 512, 2048)
        ],
        "split": [pair(*what) for what in splits],
        "split, conditional": [pair(*what, conditional=True) for what in splits],
    }


def ratio(options: argparse.Namespace) -> dict[str, object]:
    names: list[tuple[str, str]] = []
    jobs: list[Callable[[], object]] = []
    for one in APPLICATIONS:
        case = application_case(one, options.calls)
        for way, candidates in ways(one).items():
            names.append((one.name, way))
            jobs.append(partial(best_of, case, candidates, options.seeds))
    rows: list[dict[str, object]] = []
    for (application, way), answers in zip(
        names, side_by_side(jobs, options.processes), strict=True
    ):
        assert isinstance(answers, list)
        best: Found = answers[0]
        print(f"{application:10} {way:26} {best.text:20} {best.name}", flush=True)
        rows.append(
            {
                "application": application,
                "way": way,
                **best.row(),
                "others": [other.row() for other in answers[1:]],
            }
        )
    return {"rows": rows}


# ── two kinds of devices ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TraceUsers:
    """Calls of an Azure trace, in its order and at its gaps, faster or slower; seeds cut it."""

    file: Path
    longest: int = 8192

    def sessions(
        self, calls_per_s: float, seed: int, duration_s: Seconds
    ) -> Iterator[TokenSession]:
        rows = [row for row in read_azure(self.file) if row.input_tokens <= self.longest]
        begin = (seed * len(rows)) // 7
        rows = rows[begin:] + [
            replace(row, at_s=row.at_s + rows[-1].at_s - rows[0].at_s) for row in rows[:begin]
        ]
        own_rate = len(rows) / (rows[-1].at_s - rows[0].at_s)
        load = TraceLoad(speed=calls_per_s / own_rate, duration_s=duration_s)
        return trace_sessions(rows, load, seed=seed)


PRICES = {
    "ours": {device.name: device.price_per_hour for device in DEVICES},
    "Splitwise's": {"a100": 17.6 / 8, "h100": 38.0 / 8},
}
"""An hour of one device; Splitwise's table gives machines of eight."""


def splitwise_slo(shape: CallShape, slow: WorkerKind) -> Slo:
    """P90 of Splitwise §5: 3 times, and 1.5 times, what an A100 takes without load."""
    prompt_s = slow.times.prefill_s(shape.late_uncached)
    step_s = slow.times.decode_step_s(1, round(shape.context))
    return Slo(ttft_s=round(3 * prompt_s, 3), tpot_s=round(1.5 * step_s, 4))


def splitwise(options: argparse.Namespace) -> dict[str, object]:
    model = shape_of("llama-3-70b")
    devices: tuple[Device, ...] = (device_of("h100"), device_of("a100"))
    fast, slow = (Instance(device=device.name, tensor=4) for device in devices)
    names: list[tuple[str, str, Candidate]] = []
    jobs: list[Callable[[], object]] = []
    slos: dict[str, Slo] = {}
    for trace in options.traces:
        users = TraceUsers(TRACES / f"AzureLLMInferenceTrace_{trace}.csv")
        kinds = Hardware(model=model, devices=devices, most_devices=8).kinds(16384)
        shape = call_shape(users)
        by_instance = {kind.instance: kind for kind in kinds}
        slos[trace] = splitwise_slo(shape, by_instance[slow])
        case = case_of(users, slos[trace], kinds, _kv_bytes(model), options.calls)
        case = replace(case, shape=shape, within_node=False)
        candidates: dict[str, list[Candidate]] = {
            "H100 prefill, A100 decode": [pair(fast, slow, *n) for n in _NUMBERS],
            "H100 split": [pair(fast, fast, *n) for n in _NUMBERS],
            "A100 split": [pair(slow, slow, *n) for n in _NUMBERS],
            "H100 colocated": [mixed(fast, 512), mixed(fast, 2048)],
            "A100 colocated": [mixed(slow, 512), mixed(slow, 2048)],
        }
        for way, ones in candidates.items():
            likely = sorted(ones, key=lambda one: -bound_of(case, one) / one.devices)[:2]
            for one in likely:
                names.append((trace, way, one))
                jobs.append(partial(find, case, one, options.seeds))
    rows: list[dict[str, object]] = []
    for (trace, way, one), found in zip(names, side_by_side(jobs, options.processes), strict=True):
        assert isinstance(found, Found)
        per_dollar = {
            whose: 3600
            * median(found.rates_per_s)
            / sum(workers * kind.devices * prices[kind.device] for kind, workers in one.pools)
            for whose, prices in PRICES.items()
        }
        told = ", ".join(f"{value:.0f}/$ at {whose} prices" for whose, value in per_dollar.items())
        print(f"{trace:6} {way:28} {found.text:8} a device, {told}: {one.text}", flush=True)
        rows.append({"trace": trace, "way": way, **found.row(), "requests_per_dollar": per_dollar})
    return {"slos": {trace: vars_of(slo) for trace, slo in slos.items()}, "rows": rows}


_NUMBERS = ((1, 1), (2, 1), (3, 1), (1, 2))


def vars_of(slo: Slo) -> dict[str, float]:
    return {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}


PARTS = {"distserve": distserve, "ratio": ratio, "splitwise": splitwise}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--calls", type=int, default=300, help="of a run, at least")
    parser.add_argument("--seeds", type=int, default=1, help="goodputs of each; their median")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--traces", nargs="+", default=["code", "conv"])
    options = parser.parse_args()
    begun = time.monotonic()
    results = PARTS[options.part](options)
    took_s = time.monotonic() - begun
    results |= {"calls": options.calls, "seeds": options.seeds, "took_s": round(took_s)}
    print(f"Kept in {result.write(f'placement_{options.part}', results)} after {took_s:.0f} s")


if __name__ == "__main__":
    main()
