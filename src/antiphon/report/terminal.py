"""What a run came to, as text for a terminal or a file."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from antiphon.core.goodput import Goodput, SloScale
from antiphon.types import LoadRun

from . import wording
from .cells import (
    calls_line,
    latencies,
    latency_cells,
    point_cells,
    probe_cells,
    sessions_line,
    tokens_line,
)
from .comparison import Cell, Comparison
from .findings import doubts, headline, scale_headline, search_headline
from .run_summary import Group as Calls
from .run_summary import RunSummary
from .table import empty_table

_NARROW_RUN = 38
"""Columns for each run, below which its ratios stand under its numbers, not beside them."""
_NARROW = 90
"""Columns below which tables leave out what can be done without."""


def summary_table(run: LoadRun, summary: RunSummary, *, width: int = 100) -> RenderableType:
    """The whole result of one run, for a terminal of that width.

    A console that is no terminal prints it without colour; nothing is said by colour alone.
    """
    parts: list[RenderableType] = [_text(headline(run, summary), style="bold"), ""]
    parts.append(_throughput(summary))
    parts.append(_latencies(summary, narrow=width < _NARROW))
    groups = [summary.overall]
    groups += summary.classes if len(summary.classes) > 1 else ()
    groups += summary.models if len(summary.models) > 1 else ()
    parts.append(_attainment(groups, narrow=width < _NARROW))
    if summary.sessions.most_calls > 1:
        parts.append(Text(sessions_line(summary)))
        parts.append("")
    if summary.failures:
        parts.append(_failures(summary))
    parts += _warnings(doubts(run, summary))
    return Group(*parts)


def compare_table(comparison: Comparison, *, width: int = 100) -> RenderableType:
    """Runs side by side: each number, its ratio to the first run's, and whether that is noise."""
    beside = width >= _NARROW_RUN * len(comparison.names)
    table = empty_table("", *(("better",) if beside else ()))
    for place, name in enumerate(comparison.names):
        table.add_column(_text(name), justify="right", overflow="fold")
        if beside and place:
            table.add_column("")
    for row in comparison.rows:
        cells = [row.name, *((row.better.value,) if beside else ())]
        for place, cell in enumerate(row.cells):
            cells += [cell.text] if place == 0 else _against_first(cell, beside=beside)
        table.add_row(*cells)
    return Group(
        _text(comparison.headline, style="bold"),
        *_warnings(comparison.warnings),
        table,
        Text(comparison.legend),
    )


def search_table(found: Goodput | SloScale) -> RenderableType:
    """The result of a search, and everything that was measured."""
    if isinstance(found, SloScale):
        return _scale_table(found)
    table = empty_table(
        "rate", right=("runs", "calls", "attainment", "TTFT", "TPOT"), last="verdict"
    )
    for probe in found.probes:
        table.add_row(wording.rate(probe.rate_per_s), *probe_cells(probe, found.goal))
    return Group(Text(search_headline(found), style="bold"), "", table)


def _scale_table(found: SloScale) -> RenderableType:
    table = empty_table(right=("scale", "calls", "attainment", "TTFT", "TPOT"))
    for point in found.curve:
        table.add_row(*point_cells(point))
    return Group(Text(scale_headline(found), style="bold"), "", table)


def _against_first(cell: Cell, *, beside: bool) -> list[str]:
    """The number and what it means: in two columns, or one over the other."""
    return [cell.text, cell.against_first] if beside else [f"{cell.text}\n{cell.against_first}"]


def _throughput(summary: RunSummary) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column()
    grid.add_row("calls", calls_line(summary))
    grid.add_row("goodput", f"{wording.rate(summary.goodput_per_s)} per device within targets")
    grid.add_row(
        "throughput",
        f"{wording.rate(summary.ok_per_s)} calls, {wording.rate(summary.output_tokens_per_s)} "
        f"output tokens, {_or_nothing(summary.prompt_tokens_per_s)} prompt tokens",
    )
    grid.add_row("tokens", tokens_line(summary))
    return Padding(grid, (0, 0, 1, 0))


def _or_nothing(rate_per_s: float | None) -> str:
    return wording.NOTHING if rate_per_s is None else wording.rate(rate_per_s)


def _latencies(summary: RunSummary, *, narrow: bool) -> RenderableType:
    columns = (
        ("p50", "p90", "p99", "max") if narrow else ("mean", "p50", "p90", "p95", "p99", "max")
    )
    table = empty_table(f"of {wording.plural(summary.served, 'served call')}", right=columns)
    for name, values in latencies(summary):
        table.add_row(name, *latency_cells(values, columns))
    return table


def _attainment(groups: Sequence[Calls], *, narrow: bool) -> RenderableType:
    table = empty_table(
        "", *(() if narrow else ("targets",)), right=("calls", "met both", "TTFT", "TPOT")
    )
    for group in groups:
        table.add_row(
            _text(group.name or "all"),
            *(() if narrow else (wording.slo(group.slo),)),
            wording.count(group.attainment.calls),
            wording.share_with_range(group.both),
            wording.share_of(group.ttft),
            wording.share_of(group.tpot),
        )
    return table


def _failures(summary: RunSummary) -> RenderableType:
    table = empty_table("failed", right=("calls",), last="for example")
    for failure in summary.failures:
        table.add_row(
            wording.ERRORS[failure.kind], wording.count(failure.calls), _text(failure.example[:200])
        )
    return table


def _text(text: str, style: str = "") -> Text:
    """Text that may come from a server or a user: never markup, never control characters."""
    return Text(wording.plain(text), style=style)


def _warnings(warnings: Sequence[str]) -> list[RenderableType]:
    return [_text(f"Warning: {warning}", style="yellow") for warning in warnings]
