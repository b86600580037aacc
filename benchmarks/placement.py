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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median

from support import result
from support.placements import (
    Found,
    best_of,
    bound_of,
    case_of,
    find,
    kv_bytes,
    mixed,
    opt_13b,
    pair,
    side_by_side,
)

from antiphon.core.goodput import Attainment
from antiphon.core.placement import Candidate, Instance
from antiphon.perf.hardware import DEVICES, Device, device_of, shape_of
from antiphon.sim.fleet import TokenSession, TraceLoad, trace_sessions
from antiphon.sim.placing import (
    CallShape,
    Hardware,
    PlacementCase,
    TrialEffort,
    WorkerKind,
    WorkloadUsers,
    call_shape,
    jointly,
)
from antiphon.types import CallRecord, Seconds, Slo
from antiphon.workload import Poisson, parse_workload, read_azure

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


def effort_of(options: argparse.Namespace) -> TrialEffort:
    return TrialEffort(run_s=options.run_seconds, least_calls=options.calls)


def separately(records: tuple[CallRecord, ...], slo: Slo, warmup_s: Seconds) -> Attainment:
    """DistServe's search: 90 % in time for the first token, and 90 % per token, each by itself."""
    both = jointly(records, slo, warmup_s)
    return replace(both, met=min(both.ttft_met, both.tpot_met), batches=())


# ── DistServe's table ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Mode:
    """How a goodput is found. `kv_tokens`: of each worker; None: what fits."""

    name: str
    joint: bool
    transfer: bool
    kv_tokens: int | None

    def case(self, lengths: str, effort: TrialEffort) -> PlacementCase:
        case = case_of(
            WorkloadUsers(parse_workload(LENGTHS[lengths])),
            Slo(ttft_s=0.2, tpot_s=0.1),
            opt_13b(self.kv_tokens),
            kv_bytes(shape_of("opt-13b")),
            effort,
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
        partial(find, mode.case(lengths, effort_of(options)), candidate, options.seeds)
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
    """A row of DistServe's table 1; the second chat has a target that steps come near to."""

    name: str
    model: str
    workload: str
    slo: Slo
    tensor: tuple[int, ...]


APPLICATIONS = (
    Application("chat", "opt-13b", f"chat:{CONTEXT}", Slo(ttft_s=0.25, tpot_s=0.1), (1, 2)),
    Application(
        "chat, 40 ms a token", "opt-13b", f"chat:{CONTEXT}", Slo(ttft_s=0.25, tpot_s=0.04), (1, 2)
    ),
    Application("code", "opt-66b", f"code:{CONTEXT}", Slo(ttft_s=0.125, tpot_s=0.2), (4,)),
    Application("summarise", "opt-66b", f"summarise:{CONTEXT}", Slo(ttft_s=15, tpot_s=0.15), (4,)),
)


def application_case(one: Application, effort: TrialEffort) -> PlacementCase:
    shape = shape_of(one.model)
    if one.model == "opt-13b":
        kinds = opt_13b()
    else:
        kinds = Hardware(model=shape, devices=(device_of("a100"),), most_devices=8).kinds(4096)
    users = WorkloadUsers(parse_workload(one.workload))
    return case_of(users, one.slo, kinds, kv_bytes(shape), effort)


def ways(one: Application) -> dict[str, list[Candidate]]:
    instances = [Instance(device="a100", tensor=tensor) for tensor in one.tensor]
    numbers = ((1, 1), (2, 1))
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
        case = application_case(one, effort_of(options))
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
        result.write("placement_ratio", {"rows": rows})
    return {"rows": rows}


# ── two kinds of devices ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class TraceUsers:
    """Calls as long as those of an Azure trace, in its order, at Poisson times (as Splitwise §5).

    Its own gaps come in bursts of minutes, of which a short run sees one or none.
    """

    file: Path
    longest: int = 8192

    def sessions(
        self, calls_per_s: float, seed: int, duration_s: Seconds
    ) -> Iterator[TokenSession]:
        rows = [row for row in read_azure(self.file) if row.input_tokens <= self.longest]
        begin = (seed * len(rows)) // 7
        times = Poisson(calls_per_s).times(seed)
        moved = (
            replace(row, at_s=at_s)
            for row, at_s in zip(cycle(rows[begin:] + rows[:begin]), times, strict=False)
        )
        return trace_sessions(moved, TraceLoad(duration_s=duration_s), seed=seed)


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
        case = case_of(users, slos[trace], kinds, kv_bytes(model), effort_of(options))
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
    kept = {"slos": {trace: vars_of(slo) for trace, slo in slos.items()}, "rows": rows}
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
        result.write("placement_splitwise", kept)
    return kept


_NUMBERS = ((1, 1), (2, 1), (3, 1), (1, 2))


def vars_of(slo: Slo) -> dict[str, float]:
    return {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s}


PARTS = {"distserve": distserve, "ratio": ratio, "splitwise": splitwise}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--run-seconds", type=float, default=60.0, help="of a run, at least")
    parser.add_argument("--calls", type=int, default=300, help="of a run, at least")
    parser.add_argument("--seeds", type=int, default=1, help="goodputs of each; their median")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--traces", nargs="+", default=["code", "conv"])
    options = parser.parse_args()
    begun = time.monotonic()
    results = PARTS[options.part](options)
    took_s = time.monotonic() - begun
    results |= {
        "run_s": options.run_seconds,
        "calls": options.calls,
        "seeds": options.seeds,
        "took_s": round(took_s),
    }
    print(f"Kept in {result.write(f'placement_{options.part}', results)} after {took_s:.0f} s")


if __name__ == "__main__":
    main()
