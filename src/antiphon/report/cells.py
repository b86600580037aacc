"""What stands in the cells of tables, in a terminal and on a page alike."""

from collections.abc import Iterable, Sequence

from antiphon.core.goodput import Distribution, Probe, ScalePoint
from antiphon.core.number_text import number_text

from . import wording
from .run_summary import RunSummary


def point_cells(point: ScalePoint) -> tuple[str, ...]:
    """Attainment at one scale."""
    attainment = point.attainment
    return (
        number_text(point.scale),
        wording.count(attainment.calls),
        wording.share_with_range(attainment.both()),
        wording.share(attainment.ttft().value),
        wording.share(attainment.tpot().value),
    )


def sessions_line(summary: RunSummary) -> str:
    """How whole sessions fared."""
    sessions = summary.sessions
    of = wording.plural(sessions.sessions, "session")
    text = f"{wording.share_with_range(sessions.share)} of {of} met the targets with all calls"
    if sessions.e2e is None:
        return f"{text}."
    return (
        f"{text}; a whole one took {wording.seconds(sessions.e2e.p50)} (median), "
        f"{wording.seconds(sessions.e2e.p99)} (p99)."
    )


def probe_cells(probe: Probe, goal: float) -> tuple[str, ...]:
    """What was measured at one rate, but for the rate."""
    verdict = "passes" if probe.passes else "fails"
    if (probe.attainment.both().value >= goal) != probe.passes:
        verdict += " (by its neighbours)"
    attainment = probe.attainment
    return (
        str(probe.runs),
        wording.count(attainment.calls),
        wording.share_with_range(attainment.both()),
        wording.share(attainment.ttft().value),
        wording.share(attainment.tpot().value),
        verdict,
    )


def tokens_line(summary: RunSummary) -> str:
    """How many there were, and who counted them."""
    text = f"{wording.count(summary.output_tokens)} output, {_prompts(summary)}"
    sources = [
        wording.SOURCES[source] + (f" ({calls})" if len(summary.counted_by) > 1 else "")
        for source, calls in summary.counted_by
    ]
    return f"{text}, counted {', '.join(sources)}" if sources else text


def _prompts(summary: RunSummary) -> str:
    if summary.prompt_tokens is None:
        return "prompts not reported"
    share = summary.cached_share
    cached = "cached ones not reported" if share is None else f"{wording.share(share)} cached"
    return f"{wording.count(summary.prompt_tokens)} prompt ({cached})"


def latencies(summary: RunSummary) -> Sequence[tuple[str, Distribution | None]]:
    """The latencies by the names that people know."""
    return (
        ("TTFT", summary.ttft),
        ("TPOT", summary.tpot),
        ("ITL", summary.itl),
        ("end to end", summary.e2e),
        ("sent late", summary.lateness),
    )


def latency_cells(values: Distribution | None, columns: Iterable[str]) -> list[str]:
    """One cell for each column, which are names of `Distribution`'s fields."""
    return [
        wording.NOTHING if values is None else wording.seconds(getattr(values, column))
        for column in columns
    ]


def calls_line(summary: RunSummary) -> str:
    """How many there were, and how they ended."""
    text = f"{wording.count(summary.calls)}, of which {wording.count(summary.ok)} ok"
    if failed := summary.calls - summary.ok:
        text += f", {wording.count(failed)} failed"
    if summary.warmup_calls:
        text += f"; {wording.count(summary.warmup_calls)} more in the warm-up"
    return text
