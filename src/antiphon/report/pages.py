"""Reports as pages: one HTML file each, that loads nothing and runs no scripts.

Whatever comes from a server or a user is escaped, here and within plots.
"""

from collections.abc import Sequence
from functools import cache
from heapq import nlargest
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from antiphon.core.goodput import (
    Goodput,
    SloScale,
    after_warmup,
    e2e_s,
    gaps_s,
    served,
    tpot_s,
    ttft_s,
)
from antiphon.types import CallRecord, LoadRun

from . import wording
from .comparison import Cell, Comparison, goodput_of
from .findings import doubts, headline, scale_headline, search_headline
from .plots import (
    Bar,
    Curve,
    Plot,
    goodput_bars,
    latency_curves,
    rate_plot,
    scale_plot,
    svg,
    time_line_plot,
)
from .run_folder import SavedRun
from .run_summary import Group, Latencies, RunSummary
from .terminal import latencies, latency_cells, point_cells, probe_cells, sessions_line, tokens_line

_SLOWEST = 10
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def run_page(run: LoadRun, summary: RunSummary, records: Sequence[CallRecord]) -> str:
    """Everything about one run."""
    counted = list(after_warmup(records, run.warmup_s))
    shared = summary.overall.slo
    time_line = time_line_plot(summary.time_line, slo=shared, warmup_s=run.warmup_s)
    return _page(
        "run.html",
        run,
        headline=headline(run, summary),
        warnings=doubts(run, summary),
        tiles=_tiles(summary),
        facts_of_run=facts(run),
        groups=[_group_cells(name, group) for name, group in _groups(summary)],
        tokens=tokens_line(summary),
        sessions=sessions_line(summary) if summary.sessions.most_calls > 1 else "",
        served=wording.plural(summary.served, "served call"),
        latencies=[(name, *latency_cells(values, _COLUMNS)) for name, values in latencies(summary)],
        curves=_drawn(latency_curves(_curves(summary, counted))),
        curves_caption=(
            "The share of the served calls that took at most so long. Where a curve crosses the "
            "dashed line of a target is the share that met it; the dotted line is 90 %. The "
            "scale is logarithmic: the right end is the slowest calls."
        ),
        time_line=_drawn(time_line) if summary.time_line else "",
        failures=[
            (wording.ERRORS[one.kind], wording.count(one.calls), one.example)
            for one in summary.failures
        ],
        slowest=[
            _call_cells(record)
            for record in nlargest(_SLOWEST, filter(served, counted), key=_slowness)
        ],
    )


def search_page(run: LoadRun, found: Goodput, probes: Sequence[str] = ()) -> str:
    """The search for goodput; `probes`: folders, beside the page, of its runs."""
    return _page(
        "search.html",
        run,
        headline=search_headline(found),
        warnings=run.notes,
        plot=_drawn(rate_plot(found)),
        caption=(
            "Each point is a rate that was measured, with the 95 % interval of its share. Goodput "
            "is the highest rate at which the goal is still met; shaded is where noise may have "
            "moved it. Dashed and dotted: each target alone, which says which of them gives way."
        ),
        columns=("rate", "runs", "calls", "met both (95 % interval)", "TTFT", "TPOT", "verdict"),
        rows=[
            (wording.rate(probe.rate_per_s), *probe_cells(probe, found.target))
            for probe in found.probes
        ],
        text_columns=(6,),
        note=(
            "The point estimate decides; the interval only says when to stop measuring. Since "
            "attainment can't rise with the rate, neighbours in the wrong order are taken together."
        ),
        facts_of_run=facts(run),
        probes=probes,
    )


def scale_page(run: LoadRun, found: SloScale, probes: Sequence[str] = ()) -> str:
    """Attainment over targets that are stricter or laxer; `probes` as in `search_page`."""
    return _page(
        "search.html",
        run,
        headline=scale_headline(found),
        warnings=run.notes,
        plot=_drawn(scale_plot(found)),
        caption=(
            "The same calls, judged by targets that are so many times as long: left is stricter. "
            "The further left a server stays above the goal, the better."
        ),
        columns=("scale", "calls", "met both (95 % interval)", "TTFT", "TPOT"),
        rows=[point_cells(point) for point in found.curve],
        text_columns=(),
        note=(
            "A server that is told its targets and acts on them would have to be measured anew at "
            "each scale; this holds for one that is not."
        ),
        facts_of_run=facts(run),
        probes=probes,
    )


def compare_page(comparison: Comparison, runs: Sequence[SavedRun]) -> str:
    """The runs that were compared, side by side."""
    names = comparison.names
    columns = [name for place, name in enumerate(names) for name in (name, "")[: 1 + (place > 0)]]
    curves = [
        Curve(
            name,
            Latencies.of(after_warmup(saved.records, saved.run.warmup_s)),
            saved.summary.overall.slo,
        )
        for name, saved in zip(names, runs, strict=True)
    ]
    told = [facts(saved.run) for saved in runs]
    return _page(
        "compare.html",
        runs[0].run,
        title=f"{names[0]} against {', '.join(names[1:])}",
        headline=comparison.headline,
        warnings=comparison.warnings,
        columns=("", "better", *columns),
        rows=[(row.name, row.better.value, *_compared(row.cells)) for row in comparison.rows],
        text_columns=(1, *range(4, 2 + len(columns), 2)),
        legend=comparison.legend,
        bars=_drawn(
            goodput_bars(
                [Bar(name, goodput_of(saved)) for name, saved in zip(names, runs, strict=True)],
                label="calls within targets, per second and device",
            )
        ),
        curves=_drawn(latency_curves(curves)),
        run_columns=("", *names),
        run_rows=[
            (fact, *(dict(one)[fact] or wording.NOTHING for one in told)) for fact, _ in told[0]
        ],
    )


def facts(run: LoadRun) -> list[tuple[str, str]]:
    """What was run, fact by fact; the same facts in the same order for every run."""
    slos = [
        f"{name}: {wording.slo(slo)}" if name or len(run.slos) > 1 else wording.slo(slo)
        for name, slo in run.slos
    ]
    rate = "the trace's own times" if run.rate_per_s is None else f"{run.rate_per_s:.6g} requests/s"
    return [
        ("server", run.target),
        ("model", run.model),
        ("workload", run.workload),
        ("arrivals", run.arrivals),
        ("rate", rate),
        ("duration", f"{run.duration_s:g} s, of which {run.warmup_s:g} s are warm-up"),
        ("targets", "; ".join(slos) or "none"),
        ("devices", str(run.devices)),
        ("seed", str(run.seed)),
        ("begun", run.started_at),
        ("client", f"{run.version} used {wording.share(run.client_busy)} of a core".strip()),
        ("command", run.command),
    ]


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page(template: str, run: LoadRun, **parts: object) -> str:
    parts = {"title": run.title, "version": run.version, **parts}
    return _templates().get_template(template).render(parts)


def _drawn(plot: Plot) -> Markup:
    """As it is: what is text in it has been escaped when it was drawn."""
    return Markup(svg(plot))


def _tiles(summary: RunSummary) -> list[tuple[str, str]]:
    first = summary.ttft
    token = summary.tpot
    return [
        (wording.share(summary.overall.both.value), "of the calls met their targets"),
        (wording.rate(summary.goodput_per_s), "calls within targets, per device"),
        (
            wording.rate(summary.ok_per_s),
            f"calls answered; {wording.rate(summary.offered_per_s)} came",
        ),
        (wording.rate(summary.output_tokens_per_s), "output tokens"),
        (wording.seconds(first.p50 if first else None), "TTFT, median"),
        (wording.seconds(token.p50 if token else None), "TPOT, median"),
        (
            wording.count(summary.calls - summary.ok),
            f"of {wording.count(summary.calls)} calls failed",
        ),
        (wording.share(summary.cached_share), "of the prompts' tokens were cached"),
    ]


def _groups(summary: RunSummary) -> list[tuple[str, Group]]:
    found = [("all calls", summary.overall)]
    if len(summary.classes) > 1:
        found += [(one.name or "no class", one) for one in summary.classes]
    if len(summary.models) > 1:
        found += [(one.name or "no model", one) for one in summary.models]
    return found


def _group_cells(name: str, group: Group) -> tuple[str, ...]:
    return (
        name,
        wording.slo(group.slo),
        wording.count(group.attainment.calls),
        wording.share_with_range(group.both),
        wording.share(group.ttft.value),
        wording.share(group.tpot.value),
        wording.count(group.ok),
    )


def _curves(summary: RunSummary, counted: Sequence[CallRecord]) -> list[Curve]:
    """One a class, if there are several classes with targets of their own; else one of all."""
    if summary.overall.slo is not None:
        return [Curve("", Latencies.of(counted), summary.overall.slo)]
    return [
        Curve(
            group.name or "others",
            Latencies.of(record for record in counted if record.slo_class == group.name),
            group.slo,
        )
        for group in summary.classes
    ]


def _call_cells(record: CallRecord) -> tuple[str, ...]:
    return (
        str(record.number),
        f"{record.session}, turn {record.turn}" if record.turn else str(record.session),
        f"{record.due_at_s:.1f} s",
        wording.seconds(record.sent_at_s - record.due_at_s),
        wording.seconds(ttft_s(record)),
        wording.seconds(tpot_s(record)),
        wording.seconds(max(gaps_s(record), default=None)),
        wording.seconds(e2e_s(record)),
        wording.count(record.prompt_tokens),
        wording.count(record.output_tokens),
        record.request_id,
    )


def _slowness(record: CallRecord) -> tuple[float, int]:
    return e2e_s(record), -record.number


def _compared(cells: Sequence[Cell]) -> list[str]:
    """A number each; behind all but the first what it means."""
    first, *others = cells
    return [first.text, *(text for cell in others for text in (cell.text, cell.against_first))]
