"""Runs side by side, each against the first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isinf

from antiphon.core.goodput import Estimate, after_warmup, percentile_estimate, share_in_order
from antiphon.types import Seconds

from . import wording
from .comparison import Better, Comparison, Number, headline_of, names_of, row_of, unlike
from .run_folder import SavedRun
from .run_summary import Latencies, RunSummary

GOODPUT = "goodput/s per device"
_PARTS = (0.5, 0.9, 0.99)


def compare(runs: Sequence[SavedRun]) -> Comparison:
    """The runs, each against the first. Raises `UsageError` for fewer than two."""
    names = names_of([saved.run for saved in runs], [saved.folder for saved in runs])
    columns = [_numbers(saved) for saved in runs]
    rows = [row_of(numbers) for numbers in zip(*columns, strict=True)]
    goodput = next(row for row in rows if row.name == GOODPUT)
    return Comparison(
        headline=headline_of("Calls within targets, per second and device", names, goodput),
        names=names,
        rows=tuple(row for row in rows if any(cell.estimate is not None for cell in row.cells)),
        warnings=(*unlike([saved.run for saved in runs]), *_doubts(runs, names)),
    )


def _numbers(saved: SavedRun) -> list[Number]:
    """All rows of one run, in the same order for every run."""
    summary = saved.summary
    counted = after_warmup(saved.records, saved.run.warmup_s)
    times = Latencies.of(counted)
    overall, sessions = summary.overall, summary.sessions
    whole = sessions.share if sessions.most_calls > 1 else None
    in_order = sorted(counted, key=lambda record: record.due_at_s)
    failed = share_in_order([record.error is not None for record in in_order])
    offered_per_s = _offered_per_s(saved)
    return [
        Number("met both targets", Better.HIGHER, wording.share, overall.both),
        Number("met TTFT", Better.HIGHER, wording.share, overall.ttft),
        Number("met TPOT", Better.HIGHER, wording.share, overall.tpot),
        Number("sessions met all", Better.HIGHER, wording.share, whole),
        Number(
            GOODPUT,
            Better.HIGHER,
            wording.number,
            goodput_of(saved),
            offered_per_s=offered_per_s,
        ),
        Number("failed", Better.LOWER, wording.share, failed if counted else None),
        *_latency_numbers("TTFT", times.ttft_s),
        *_latency_numbers("TPOT", times.tpot_s),
        *_latency_numbers("ITL", times.itl_s),
        *_latency_numbers("end to end", times.e2e_s),
        *_throughputs(summary, offered_per_s),
        _once("share of prompts cached", Better.NEITHER, summary.cached_share, wording.share),
    ]


def _throughputs(summary: RunSummary, offered_per_s: float) -> list[Number]:
    """A server that keeps up has the throughput that was asked of it."""
    values = (
        ("requests/s", summary.ok_per_s),
        ("output tokens/s", summary.output_tokens_per_s),
        ("prompt tokens/s", summary.prompt_tokens_per_s),
    )
    return [
        replace(
            _once(name, Better.HIGHER, value if summary.calls else None),
            offered_per_s=offered_per_s,
        )
        for name, value in values
    ]


def _offered_per_s(saved: SavedRun) -> float:
    """As it was planned; of a trace at its own times, as it came."""
    planned = saved.run.rate_per_s
    return saved.summary.offered_per_s if planned is None else planned


def goodput_of(saved: SavedRun) -> Estimate | None:
    """Calls within targets, per second and device; as uncertain as the share of them.

    None without calls.
    """
    both = saved.summary.overall.both
    if both is None:
        return None
    scale = saved.summary.offered_per_s / saved.run.devices
    return Estimate(scale * both.value, scale * both.low, scale * both.high)


def _once(
    name: str, better: Better, value: float | None, text: Callable[[float], str] = wording.number
) -> Number:
    """A number of which a run has only one, or none."""
    estimate = None if value is None else Estimate(value, value, value)
    return Number(name, better, text, estimate, noise_known=False)


def _latency_numbers(name: str, values: Sequence[Seconds]) -> list[Number]:
    estimates = [percentile_estimate(values, part) if values else None for part in _PARTS]
    return [
        Number(
            f"{name} p{100 * part:.0f}",
            Better.LOWER,
            wording.seconds,
            estimate,
            too_few=estimate is not None and isinf(estimate.high),
        )
        for part, estimate in zip(_PARTS, estimates, strict=True)
    ]


def _doubts(runs: Sequence[SavedRun], names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name, saved in zip(names, runs, strict=True):
        if not saved.whole:
            found.append(f"{name}: was interrupted.")
        found += [f"{name}: {doubt}" for doubt in saved.run.notes]
    return found
