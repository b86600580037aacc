"""Split against colocated, with and without chunked prefill, for the applications of DistServe.

Each way to place is judged by its best candidate. Beside goodput: the tightest targets, as a share
of those given, that it holds at one rate; what its pools do with their devices at their goodput;
and, for chat, how the ratio grows as the target per token comes near to what a step takes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite

from antiphon.core.goodput import after_warmup, tightest_scale
from antiphon.core.placement import Candidate, Colocated, Space, Split
from antiphon.perf.hardware import device_of, shape_of
from antiphon.sim.placing import Hardware, PlacementCase, WorkloadUsers
from antiphon.types import Slo
from antiphon.workload import parse_workload

from . import result
from .placement_distserve import CONTEXT
from .placements import (
    Effort,
    Found,
    best_of,
    case_of,
    kv_bytes,
    offers,
    opt_13b,
    side_by_side,
)

FULL_CELL = 4
"""Devices of a candidate, or the next more: ways are compared at about one size. Twice as many at
most; half as many at reduced length, if the model fits."""
STEP_TOKENS = (256, 512, 2048)


@dataclass(frozen=True)
class Application:
    """A row of DistServe's table 1; the second chat has a target that steps come near to, and
    "fixed" is the set-up of its first figure. `tensor`: devices of a worker; empty: any."""

    name: str
    model: str
    workload: str
    slo: Slo
    tensor: tuple[int, ...] = ()


CHAT = f"chat:{CONTEXT}"
APPLICATIONS = (
    Application("chat", "opt-13b", CHAT, Slo(ttft_s=0.25, tpot_s=0.1)),
    Application("chat, 40 ms", "opt-13b", CHAT, Slo(ttft_s=0.25, tpot_s=0.04)),
    Application(
        "fixed, 40 ms", "opt-13b", "fixed:input=512,output=64", Slo(ttft_s=0.4, tpot_s=0.04), (1,)
    ),
    Application("code", "opt-66b", f"code:{CONTEXT}", Slo(ttft_s=0.125, tpot_s=0.2)),
    Application("summarise", "opt-66b", f"summarise:{CONTEXT}", Slo(ttft_s=15, tpot_s=0.15)),
)
TIGHT = ((25, 4), (20, 4), (15, 4), (15, 12), (12, 4))
"""Milliseconds a token, and devices of a cell: a prefill worker feeds more decode workers than a
small cell has."""
FULL_TIGHT = tuple((ms, cell) for ms in (60, 30, 25, 22, 20, 17, 15, 13, 12) for cell in (4, 12))


def _prompts_first(one: Candidate) -> bool:
    return isinstance(one, Colocated) and one.prefill_first


def _chunked(one: Candidate) -> bool:
    return isinstance(one, Colocated) and not one.prefill_first


def _split(one: Candidate) -> bool:
    return isinstance(one, Split) and not one.conditional


def _conditional(one: Candidate) -> bool:
    return isinstance(one, Split) and one.conditional


WAYS: dict[str, Callable[[Candidate], bool]] = {
    "colocated, prompts first": _prompts_first,
    "colocated, chunked": _chunked,
    "split": _split,
    "split, conditional": _conditional,
}


COLOCATED = ("colocated, prompts first", "colocated, chunked")


def case_for(one: Application, effort: Effort) -> PlacementCase:
    shape = shape_of(one.model)
    if one.model == "opt-13b":
        kinds = opt_13b()
    else:
        hardware = Hardware(model=shape, devices=(device_of("a100"),), most_devices=FULL_CELL)
        kinds = tuple(kind for kind in hardware.kinds(4096) if kind.instance.pipeline == 1)
    if one.tensor:
        kinds = tuple(kind for kind in kinds if kind.instance.tensor in one.tensor)
    users = WorkloadUsers(parse_workload(one.workload))
    return case_of(users, one.slo, kinds, kv_bytes(shape), effort.trial)


def best_by_way(
    case: PlacementCase, ways: Sequence[str], effort: Effort, *, cell: int = FULL_CELL
) -> Iterator[Callable[[], Found | None]]:
    instances = tuple(kind.instance for kind in case.kinds)
    space = Space(
        instances=tuple(instance for instance in instances if instance.devices <= cell),
        most_devices=2 * cell,
        step_tokens=STEP_TOKENS,
        cell_devices=cell,
    )
    for way in ways:
        offered = offers(case, space, WAYS[way], effort.candidates)
        yield partial(best_of, case, offered, effort.seeds)


# ── goodput, targets and devices of each application ─────────────────────────────────────────


def ratio(effort: Effort) -> dict[str, object]:
    cases = {one.name: case_for(one, effort) for one in APPLICATIONS}
    jobs = [
        job
        for one, case in zip(APPLICATIONS, cases.values(), strict=True)
        for job in best_by_way(case, list(WAYS), effort, cell=_cell(one, effort))
    ]
    found = _goodputs(jobs, list(cases), list(WAYS), effort)
    rates = {name: _together(best) / 2 for name, best in found.items()}
    jobs = [
        partial(tightest, cases[name], one.candidate, rates[name] * one.devices)
        for name, best in found.items()
        for one in best.values()
    ]
    scales = side_by_side(jobs, effort.processes)
    rows: list[dict[str, object]] = []
    kept: dict[str, object] = {"applications": rows}
    for name, best in found.items():
        ways: dict[str, object] = {}
        for way, one in best.items():
            scale, times = next(scales), _times(one, best)
            ways[way] = {**one.row(), "to_colocated": times, "tightest_scale": scale}
            print(
                f"{name:12} {way:25} {_text(times)} times colocated; "
                f"{_text(scale)} of the targets at {rates[name]:.2f} a device",
                flush=True,
            )
        slo = cases[name].slo
        rows.append(
            {
                "application": name,
                "slo": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s},
                "scale_at_per_device": rates[name],
                "ways": ways,
            }
        )
        result.write("placement_ratio", {**effort.row(), **kept})
    return kept


def _cell(one: Application, effort: Effort) -> int:
    """Half of it at reduced length, if the model fits."""
    return FULL_CELL if effort.full or one.model != "opt-13b" else FULL_CELL // 2


def _goodputs(
    jobs: Sequence[Callable[[], Found | None]],
    names: Sequence[str],
    ways: Sequence[str],
    effort: Effort,
) -> dict[str, dict[str, Found]]:
    """By case and way, where anything is in time; prints a line for each."""
    answers = side_by_side(jobs, effort.processes)
    found: dict[str, dict[str, Found]] = {name: {} for name in names}
    for name, best in found.items():
        for way in ways:
            answer = next(answers)
            told = "nothing in time"
            if answer is not None:
                best[way] = answer
                told = f"{answer.text:>6} a device: {answer.candidate.text} ({answer.use})"
            print(f"{name:12} {way:25} {told}", flush=True)
    return found


def _together(best: Mapping[str, Found]) -> float:
    """Of the better colocated way, for each device."""
    return max((best[way].per_device for way in COLOCATED if way in best), default=0.0)


def _times(one: Found | None, best: Mapping[str, Found]) -> float | None:
    """Its goodput to that of colocated workers; None: one of them has none."""
    together = _together(best)
    return one.per_device / together if one and together else None


def _text(number: float | None) -> str:
    return "–" if number is None else f"{number:.2f}"


def tightest(case: PlacementCase, candidate: Candidate, calls_per_s: float) -> float | None:
    """The share of the targets within which 90 % still are at that rate; None: no targets do."""
    if not calls_per_s:
        return None
    begin_s = case.warmup_s
    end_s = begin_s + max(case.run_s, case.effort.least_calls / calls_per_s)
    records = after_warmup(case.records(candidate, calls_per_s, 0, end_s), begin_s)
    scale = tightest_scale(records, (("", case.slo),)).value
    return scale if isfinite(scale) else None


# ── where a split wins ───────────────────────────────────────────────────────────────────────


def tight(effort: Effort) -> dict[str, object]:
    """Chat, with less and less time for a token."""
    targets = FULL_TIGHT if effort.full else TIGHT
    cells = {f"chat, {ms} ms, {cell}": (ms / 1e3, cell) for ms, cell in targets}
    cases = {
        name: case_for(Application(name, "opt-13b", CHAT, Slo(ttft_s=0.25, tpot_s=tpot_s)), effort)
        for name, (tpot_s, _) in cells.items()
    }
    rows: list[dict[str, object]] = []
    kept: dict[str, object] = {"rows": rows}
    ways = [*COLOCATED, "split"]
    jobs = [
        job
        for name, case in cases.items()
        for job in best_by_way(case, ways, effort, cell=cells[name][1])
    ]
    for name, best in _goodputs(jobs, list(cases), ways, effort).items():
        times = _times(best.get("split"), best)
        print(f"{name:12} split: {_text(times)} times colocated", flush=True)
        rows.append(
            {
                "tpot_ms": cells[name][0] * 1e3,
                "cell_devices": cells[name][1],
                "split_to_colocated": times,
                "ways": {way: one.row() for way, one in best.items()},
            }
        )
        result.write("placement_tight", {**effort.row(), **kept})
    return kept
