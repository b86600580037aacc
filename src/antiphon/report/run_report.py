"""The report of one run, as a page."""

from collections.abc import Sequence
from heapq import nlargest

from antiphon.core.goodput import after_warmup, e2e_s, gaps_s, served, tpot_s, ttft_s
from antiphon.types import CallRecord, LoadRun

from . import wording
from .cells import latencies, latency_cells, sessions_line, tokens_line
from .findings import doubts, headline
from .page import drawn, facts, rendered
from .plots import Curve, latency_curves, time_line_plot
from .run_summary import Group, Latencies, RunSummary

_SLOWEST = 10
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def run_page(run: LoadRun, summary: RunSummary, records: Sequence[CallRecord]) -> str:
    """Everything about one run."""
    counted = list(after_warmup(records, run.warmup_s))
    shared = summary.overall.slo
    time_line = time_line_plot(summary.time_line, slo=shared, warmup_s=run.warmup_s)
    return rendered(
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
        curves=drawn(latency_curves(_curves(summary, counted))),
        curves_caption=(
            "The share of the served calls that took at most so long. Where a curve crosses the "
            "dashed line of a target is the share of them that met it; the dotted line is 90 %. "
            "The scale is logarithmic: the right end is the slowest calls."
        ),
        time_line=drawn(time_line) if summary.time_line else "",
        failures=[
            (wording.ERRORS[one.kind], wording.count(one.calls), one.example)
            for one in summary.failures
        ],
        slowest=[
            _call_cells(record)
            for record in nlargest(_SLOWEST, filter(served, counted), key=_slowness)
        ],
    )


def _tiles(summary: RunSummary) -> list[tuple[str, str]]:
    first = summary.ttft
    token = summary.tpot
    return [
        (wording.share_of(summary.overall.both), "of the calls met their targets"),
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
        _cached_tile(summary.cached_share),
    ]


def _cached_tile(cached: float | None) -> tuple[str, str]:
    if cached is None:
        return wording.NOTHING, "cached tokens: not reported by the server"
    return wording.share(cached), "of the prompts' tokens were cached"


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
        wording.share_of(group.ttft),
        wording.share_of(group.tpot),
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
        wording.NOTHING if record.prompt_tokens is None else wording.count(record.prompt_tokens),
        wording.count(record.output_tokens),
        record.request_id,
    )


def _slowness(record: CallRecord) -> tuple[float, int]:
    return e2e_s(record), -record.number
