"""What `antiphon plan` found: a table, JSON, a plot, and a configuration to serve."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from antiphon.core.goodput import Attainment, Estimate
from antiphon.core.number_text import number_text, plural
from antiphon.core.placement import Candidate, Judged, Look, Promise, Trial
from antiphon.report.plots import Bar, goodput_bars, svg
from antiphon.sim.placing import PlanOrder, SearchRun, cluster_values

_WIDTH = 118
_MOST_BEATEN = 12


def table(order: PlanOrder, run: SearchRun, *, whole: bool) -> str:
    """Several lines of text, the answer first."""
    console = Console(width=_WIDTH, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        for line in _answer(order, run):
            console.print(line, soft_wrap=True, markup=False)
        if run.search.ranking() or run.search.beaten:
            console.print(_rows(run))
        for line in _remarks(order, run, whole=whole):
            console.print(line, soft_wrap=True, markup=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def best_fleet(order: PlanOrder, run: SearchRun) -> tuple[Judged, Candidate] | None:
    """The best cell, and as many copies of it as there are devices for, or as the rate needs."""
    best = next((one for one in run.search.ranking() if one.per_s), None)
    if best is None:
        return None
    copies = _copies(order, best)
    return best, best.promise.candidate.times(copies)


def _copies(order: PlanOrder, judged: Judged) -> int:
    wanted = None if order.rate_per_s is None else judged.copies(order.rate_per_s)
    return wanted or max(1, order.hardware.most_devices // judged.promise.candidate.devices)


# ── text ─────────────────────────────────────────────────────────────────────────────────────


def _answer(order: PlanOrder, run: SearchRun) -> Iterator[str]:
    found = best_fleet(order, run)
    slo = order.slo
    targets = f"TTFT {number_text(slo.ttft_s * 1e3)} ms and TPOT {number_text(slo.tpot_s * 1e3)} ms"
    if found is None:
        yield f"Nothing that was simulated has 90 % of calls within {targets} at any rate."
        return
    best, fleet = found
    copies = fleet.devices // best.promise.candidate.devices
    yield f"{order.hardware.model.name}: {fleet.text}"
    yield (
        f"{number_text(copies * best.per_s, 3)} calls/s with 90 % within {targets}, on "
        f"{plural(fleet.devices, 'device')} at "
        f"{number_text(copies * best.promise.price_per_hour, 3)} an hour"
    )
    most = order.hardware.most_devices
    if fleet.devices > most:
        yield f"That rate needs more than the {plural(most, 'device')} of --count."
    elif fleet.devices < most and order.rate_per_s is None:
        yield f"{most - fleet.devices} of {plural(most, 'device')} are too few for one more cell."


def _rows(run: SearchRun) -> Table:
    rows = Table(box=SIMPLE_HEAD, pad_edge=False)
    rows.add_column("cell", overflow="fold")
    for name in ("bound/s", "calls/s", "seeds", "a device", "1,000 cost"):
        rows.add_column(name, justify="right")
    rows.add_column("behind, and why", overflow="fold")
    ranking = run.search.ranking()
    for judged in ranking:
        promise = judged.promise
        rows.add_row(
            promise.candidate.text,
            f"{promise.bound_per_s:.2f}",
            f"{judged.per_s:.2f}",
            _spread(judged),
            f"{judged.per_s / promise.candidate.devices:.3f}",
            _cost(promise, judged.per_s),
            "best" if judged is ranking[0] else f"{_behind(run, judged)}{_limit(run, judged)}",
        )
    for trial in run.search.beaten[:_MOST_BEATEN]:
        promise = trial.promise
        rows.add_row(
            promise.candidate.text,
            f"{promise.bound_per_s:.2f}",
            f"< {trial.beat_per_s or 0:.2f}",
            "glance",
            "",
            "",
            _failure(run.failures[promise.candidate]),
        )
    return rows


def _spread(judged: Judged) -> str:
    if judged.look is Look.GLANCE:
        return "glance"
    if len(judged.rates_per_s) == 1:
        return "1"
    return f"{len(judged.rates_per_s)}: {judged.least_per_s:.2f}–{judged.most_per_s:.2f}"


def _cost(promise: Promise, per_s: float) -> str:
    return f"{promise.price_per_hour / per_s / 3.6:.3f}" if per_s else "–"


def _behind(run: SearchRun, judged: Judged) -> str:
    best = run.search.worth(run.search.ranking()[0])
    behind = 1 - run.search.worth(judged) / best if best else 0.0
    return f"{behind:.0%}; " if behind > 0 else ""


def _limit(run: SearchRun, judged: Judged) -> str:
    """What is late first when the rate rises."""
    goodput = run.found[judged.promise.candidate][-1]
    failing = [probe for probe in goodput.probes if not probe.passes]
    return _failure(failing[0].attainment) if failing else ""


def _failure(attained: Attainment) -> str:
    return (
        f"beyond it {attained.both().value:.0%} in time: first token "
        f"{attained.ttft().value:.0%}, tokens {attained.tpot().value:.0%}"
    )


def _remarks(order: PlanOrder, run: SearchRun, *, whole: bool) -> Iterator[str]:
    search = run.search
    rest = len(search.beaten) - _MOST_BEATEN
    if rest > 0:
        yield f"{rest} more were beaten."
    if search.pruned:
        yield f"{len(search.pruned)} candidates can't be better: their bounds are below the best."
    if search.untried:
        next_one = search.untried[0]
        yield (
            f"{len(search.untried)} that might be were not simulated (--trials), first of all "
            f"{next_one.candidate.text} (bound {next_one.bound_per_s:.2f}/s)."
        )
    if not whole:
        yield "Interrupted: this is what was known by then."
    shape = run.case.shape
    yield (
        f"Calls: {shape.input:.0f} tokens in ({shape.uncached:.0f} that no cache could have), "
        f"{shape.output:.0f} out. Prices: "
        + ", ".join(
            f"{one.name} {number_text(one.price_per_hour)}" for one in order.hardware.devices
        )
        + " an hour."
    )


# ── files ────────────────────────────────────────────────────────────────────────────────────


def document(order: PlanOrder, run: SearchRun, *, whole: bool) -> Mapping[str, Any]:
    """All of it, for scripts."""
    found = best_fleet(order, run)
    search = run.search
    return {
        "model": order.hardware.model.name,
        "devices": [one.name for one in order.hardware.devices],
        "count": order.hardware.most_devices,
        "slo": {"ttft_s": order.slo.ttft_s, "tpot_s": order.slo.tpot_s},
        "by": order.objective.value,
        "rate_per_s": order.rate_per_s,
        "whole": whole,
        "best": None if found is None else _fleet(*found),
        "ranking": [_judged(run, one) for one in search.ranking()],
        "beaten": [_beaten(run, one) for one in search.beaten],
        "pruned": len(search.pruned),
        "untried": len(search.untried),
    }


def _fleet(best: Judged, fleet: Candidate) -> Mapping[str, Any]:
    copies = fleet.devices // best.promise.candidate.devices
    return {
        "text": fleet.text,
        "pools": [
            {
                "workers": workers,
                "device": instance.device,
                "tensor": instance.tensor,
                "pipeline": instance.pipeline,
            }
            for instance, workers in fleet.pools
        ],
        "devices": fleet.devices,
        "calls_per_s": copies * best.per_s,
        "price_per_hour": copies * best.promise.price_per_hour,
    }


def _promise(promise: Promise) -> Mapping[str, Any]:
    return {
        "cell": promise.candidate.text,
        "kind": promise.candidate.kind,
        "devices": promise.candidate.devices,
        "price_per_hour": promise.price_per_hour,
        "bound_per_s": promise.bound_per_s,
    }


def _judged(run: SearchRun, judged: Judged) -> Mapping[str, Any]:
    return {
        **_promise(judged.promise),
        "calls_per_s": judged.per_s,
        "look": judged.look.value,
        "calls_per_s_by_seed": list(judged.rates_per_s),
        "calls_per_s_per_device": judged.per_s / judged.promise.candidate.devices,
        "worth": run.search.worth(judged),
    }


def _beaten(run: SearchRun, trial: Trial) -> Mapping[str, Any]:
    attained = run.failures[trial.promise.candidate]
    return {
        **_promise(trial.promise),
        "fails_at_per_s": trial.beat_per_s,
        "in_time": attained.both().value,
        "ttft_in_time": attained.ttft().value,
        "tpot_in_time": attained.tpot().value,
    }


def keep(folder: Path, order: PlanOrder, run: SearchRun, *, whole: bool) -> None:
    """Write `plan.json`, `plan.svg` and `cluster.toml`; the last two only if anything is good."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document(order, run, whole=whole), indent=2)
    (folder / "plan.json").write_text(text + "\n")
    found = best_fleet(order, run)
    if found is None:
        return
    (folder / "plan.svg").write_text(svg(goodput_bars(_bars(run.search.ranking()))))
    (folder / "cluster.toml").write_text(cluster_toml(order, *found))


def _bars(ranking: Sequence[Judged]) -> list[Bar]:
    bars: list[Bar] = []
    for judged in ranking:
        devices = judged.promise.candidate.devices
        rates = (judged.per_s, judged.least_per_s, judged.most_per_s)
        bars.append(Bar(judged.promise.candidate.text, Estimate(*(one / devices for one in rates))))
    return bars


def cluster_toml(order: PlanOrder, best: Judged, fleet: Candidate) -> str:
    """A file for `antiphon serve`: roles, numbers, budgets and targets as they were simulated."""
    copies = fleet.devices // best.promise.candidate.devices
    slo = order.slo
    lines = [
        f"# {order.hardware.model.name}: {fleet.text}",
        f"# {number_text(copies * best.per_s, 3)} calls/s in the simulator, 90 % of them within "
        f"TTFT {number_text(slo.ttft_s)} s and TPOT {number_text(slo.tpot_s)} s",
        *(
            f"# each of {workers} workers: {instance.device}, tensor parallel {instance.tensor}, "
            f"pipeline parallel {instance.pipeline}"
            for instance, workers in fleet.pools
        ),
        "",
        "[model]",
        "# The folder, or the name, of the weights.",
        f"name = {json.dumps(order.hardware.model.name)}",
    ]
    for name, values in cluster_values(fleet, slo).items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
