"""Two kinds of devices: H100 for prompts and A100 for answers, as Splitwise, on its Azure traces.

Its claim: 1.4 times the throughput at 20 % lower cost than clusters of one kind. Here goodput for
each unit of money, so throughput at equal cost is the ratio of two of them, and cost at equal
throughput its inverse.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import cycle
from pathlib import Path

from antiphon.core.placement import Candidate, Colocated, Instance, Objective, Space, Split
from antiphon.perf.hardware import DEVICES, device_of, shape_of
from antiphon.sim.fleet import TokenSession, TraceLoad, trace_sessions
from antiphon.sim.placing import CallShape, Hardware, PlacementCase, WorkerKind, call_shape
from antiphon.types import Seconds, Slo
from antiphon.workload import Poisson, TraceRow, read_azure

from . import result
from .placements import Effort, Found, best_of, case_of, kv_bytes, offers, side_by_side

TRACES = ("code", "conv")
MODEL = "llama-3-70b"
FAST, SLOW = "h100", "a100"
TENSOR = 4
CELL, MOST = 8, 16
PRICES: dict[str, Mapping[str, float]] = {
    "ours": {device.name: device.price_per_hour for device in DEVICES},
    "Splitwise's": {SLOW: 17.6 / 8, FAST: 38.0 / 8},
}
"""An hour of one device; Splitwise's table gives machines of eight."""


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
        rows = [row for row in _rows(self.file) if row.input_tokens <= self.longest]
        begin = (seed * len(rows)) // 7
        times = Poisson(calls_per_s).times(seed)
        moved = (
            replace(row, at_s=at_s)
            for row, at_s in zip(cycle(rows[begin:] + rows[:begin]), times, strict=False)
        )
        return trace_sessions(moved, TraceLoad(duration_s=duration_s), seed=seed)


@lru_cache(maxsize=4)
def _rows(file: Path) -> tuple[TraceRow, ...]:
    return tuple(read_azure(file))


def slo_of(shape: CallShape, slow: WorkerKind) -> Slo:
    """P90 of Splitwise §5: 3 times, and 1.5 times, what an A100 takes without load."""
    prompt_s = slow.times.prefill_s(shape.late_uncached)
    step_s = slow.times.decode_step_s(1, round(shape.context))
    return Slo(ttft_s=round(3 * prompt_s, 3), tpot_s=round(1.5 * step_s, 4))


def case_for(file: Path, effort: Effort) -> PlacementCase:
    model = shape_of(MODEL)
    devices = tuple(map(device_of, (FAST, SLOW)))
    users = TraceUsers(file)
    wanted = tuple(Instance(device=name, tensor=TENSOR) for name in (FAST, SLOW))
    fitting = Hardware(model=model, devices=devices, most_devices=TENSOR).kinds(16384)
    kinds = {kind.instance: kind for kind in fitting if kind.instance in wanted}
    slo = slo_of(call_shape(users), kinds[wanted[1]])
    case = case_of(users, slo, tuple(kinds.values()), kv_bytes(model), effort.trial)
    longest = max(case.shape.longest, users.longest)  # the first calls are not the longest
    return replace(case, within_node=False, shape=replace(case.shape, longest=longest))


def _of(prefill: str, decode: str) -> Callable[[Candidate], bool]:
    def fits(one: Candidate) -> bool:
        return (
            isinstance(one, Split)
            and not one.conditional
            and (one.prefill.device, one.decode.device) == (prefill, decode)
        )

    return fits


def _all(device: str) -> Callable[[Candidate], bool]:
    return lambda one: isinstance(one, Colocated) and one.instance.device == device


TWO_KINDS = "H100 prefill, A100 decode"
WAYS = {
    TWO_KINDS: _of(FAST, SLOW),
    "H100 split": _of(FAST, FAST),
    "A100 split": _of(SLOW, SLOW),
    "H100 colocated": _all(FAST),
    "A100 colocated": _all(SLOW),
}


def splitwise(effort: Effort, folder: Path) -> dict[str, object]:
    cases = {
        trace: case_for(folder / f"AzureLLMInferenceTrace_{trace}.csv", effort) for trace in TRACES
    }
    space = Space(
        instances=tuple(kind.instance for kind in cases[TRACES[0]].kinds),
        most_devices=MOST,
        cell_devices=CELL,
    )
    jobs = [
        partial(
            best_of,
            case,
            offers(case, space, way, effort.candidates, Objective.MONEY),
            effort.seeds,
        )
        for case in cases.values()
        for way in WAYS.values()
    ]
    answers = side_by_side(jobs, effort.processes)
    rows: list[dict[str, object]] = []
    kept: dict[str, object] = {"claim": "1.4 times the throughput at 0.8 of the cost", "rows": rows}
    for trace, case in cases.items():
        found: dict[str, Found] = {}
        for way in WAYS:
            answer = next(answers)
            told = "nothing in time"
            if answer is not None:
                found[way] = answer
                money = ", ".join(f"{value:.0f}/$ ({whose})" for whose, value in worths(answer))
                told = f"{answer.text:>6} a device, {money}: {answer.candidate.text} ({answer.use})"
            print(f"{trace:5} {way:26} {told}", flush=True)
        compared = list(_compared(found))
        for one in compared:
            print(
                f"{trace:5} two kinds to {one['against']} at {one['prices']} prices: "
                f"{one['throughput_at_equal_cost']:.2f} times the throughput at equal cost, "
                f"{one['cost_at_equal_throughput']:.2f} of the cost at equal throughput",
                flush=True,
            )
        rows.append(
            {
                "trace": trace,
                "slo": {"ttft_s": case.slo.ttft_s, "tpot_s": case.slo.tpot_s},
                "ways": {
                    way: {**one.row(), "requests_per_dollar": dict(worths(one))}
                    for way, one in found.items()
                },
                "two_kinds": compared,
            }
        )
        result.write("placement_splitwise", {**effort.row(), **kept})
    return kept


def worths(found: Found) -> Iterator[tuple[str, float]]:
    """Requests in time for each dollar, by whose prices."""
    for whose, prices in PRICES.items():
        price = sum(
            workers * kind.devices * prices[kind.device] for kind, workers in found.candidate.pools
        )
        yield whose, 3600 * found.per_s / price


def _compared(found: Mapping[str, Found]) -> Iterator[dict[str, object]]:
    """Two kinds of devices against each way to use one."""
    two = found.get(TWO_KINDS)
    for whose, mine in worths(two) if two else ():
        for way, one in found.items():
            theirs = dict(worths(one))[whose]
            if way != TWO_KINDS and mine and theirs:
                yield {
                    "prices": whose,
                    "against": way,
                    "throughput_at_equal_cost": mine / theirs,
                    "cost_at_equal_throughput": theirs / mine,
                }
