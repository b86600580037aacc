"""What a run says, in sentences: the result, and what speaks against believing it."""

from math import isfinite, isinf

from antiphon.core.goodput import GOAL, NO_TARGETS, Goodput, SloScale, StopReason
from antiphon.core.number_text import number_text
from antiphon.types import LoadRun

from . import wording
from .run_summary import RunSummary

_FEW_CALLS = 100
_PILED_UP = 1.5
"""Calls in flight at the end of a run, as a multiple of its middle, that are no steady state."""
_PILED_UP_CALLS = 8.0
"""Fewer are no pile."""
_CACHED = 0.5


def headline(run: LoadRun, summary: RunSummary) -> str:
    """One sentence for whoever reads no further."""
    if summary.calls == 0:
        return "No call was due after the warm-up: there is nothing to judge by."
    at = f"At {_rate(run, summary)}"
    overall, calls = summary.overall, wording.plural(summary.calls, "call")
    if overall.slo == NO_TARGETS:
        ok = wording.share(summary.ok / summary.calls)
        return f"{at} {ok} of {calls} came to their end; no targets were set."
    return (
        f"{at} {wording.share_with_range(overall.both)} of {calls} met {wording.slo(overall.slo)}."
    )


def _rate(run: LoadRun, summary: RunSummary) -> str:
    """What came; and what was planned, unless that is the same. Sessions may outlast the load."""
    planned, offered = run.rate_per_s, wording.number(summary.offered_per_s)
    if planned is None:
        return f"{offered} requests/s (at the trace's own times)"
    if offered == wording.number(planned):
        return wording.set_rate(planned)
    return f"{offered} requests/s ({number_text(planned)} planned)"


def doubts(run: LoadRun, summary: RunSummary) -> tuple[str, ...]:
    """What a reader should know before believing the numbers.

    First what the client noted itself: whether it fell behind, or had to guess at tokens.
    """
    return (
        *run.notes,
        *_server_doubts(summary),
        *_statistical_doubts(run, summary),
    )


def search_headline(found: Goodput) -> str:
    """One sentence on what a search for goodput found."""
    per_device = f"{wording.number(found.per_device)} requests/s per device"
    of = f" ({wording.number(found.rate_per_s)} on {found.devices})" if found.devices > 1 else ""
    fails = "" if found.fails_at_per_s is None else f"; {wording.rate(found.fails_at_per_s)} fails"
    match found.stopped:
        case StopReason.FOUND:
            return f"Goodput is {per_device}{of}{fails}."
        case StopReason.ALL_FAIL:
            return f"Goodput is 0: even {wording.rate(found.fails_at_per_s or 0.0)} fails."
        case StopReason.ALL_PASS:
            return (
                f"Goodput is at least {per_device}{of}: the highest rate that was allowed passes."
            )
        case StopReason.OUT_OF_RUNS:
            return (
                f"Goodput is about {per_device}{of}{fails}: all runs that were allowed are spent."
            )
        case StopReason.NO_CALLS:
            return "Goodput is unknown: a run had no call after its warm-up."
        case StopReason.UNFINISHED:
            return f"Goodput is at least {per_device}{of}, as far as was measured{fails}."


def scale_headline(found: SloScale) -> str:
    """One sentence on what a search over the tightness of targets found."""
    at, goal = f"At {wording.set_rate(found.rate_per_s)}", wording.goal(found.goal)
    calls = wording.plural(found.calls, "call")
    if isinf(found.tightest.value):
        return f"{at} no targets, however lax, are met by {goal} of {calls}: too many failed."
    low, high = found.tightest.low, found.tightest.high
    between = f"{low:.2f}–{high:.2f}" if isfinite(high) else f"at least {low:.2f}"
    return (
        f"{at} {goal} of {calls} meet targets that are {wording.number(found.tightest.value)} "
        f"({between}) times as long."
    )


def _server_doubts(summary: RunSummary) -> list[str]:
    found: list[str] = []
    failed = summary.calls - summary.ok
    if failed:
        found.append(
            f"{wording.plural(failed, 'call')} of {wording.count(summary.calls)} failed "
            f"({wording.share(failed / summary.calls)}). They met no target, and are in no "
            "latency: percentiles are of the calls that were served."
        )
    if empty := summary.ok - summary.served:
        found.append(
            f"{wording.plural(empty, 'call')} came to their end without any content; they met no "
            "target."
        )
    cached = summary.cached_share
    if cached is not None and cached > _CACHED:
        found.append(
            f"{wording.share(cached)} of the prompts' tokens came from a cache. If "
            "your users' prompts are not as alike, expect a longer time to first token."
        )
    return found


def _statistical_doubts(run: LoadRun, summary: RunSummary) -> list[str]:
    found: list[str] = []
    both = summary.overall.both
    if both is not None and summary.overall.slo != NO_TARGETS and not both.excludes(GOAL):
        found.append(
            f"The interval of attainment reaches over {wording.goal(GOAL)}: whether this rate is "
            "within goodput is not settled. Run longer."
        )
    if 0 < summary.calls < _FEW_CALLS:
        found.append(
            f"Only {wording.plural(summary.calls, 'call')}: the 99th percentile is about the "
            "slowest of them, and will be another next time."
        )
    if run.warmup_s == 0 and summary.calls:
        found.append(
            "There was no warm-up: the first calls met an idle server, and perhaps cold caches."
        )
    if _piles_up(run, summary):
        found.append(
            "Calls piled up until the end of the run: the server took fewer than came. Latencies "
            "would have grown further, had the run been longer."
        )
    return found


def _piles_up(run: LoadRun, summary: RunSummary) -> bool:
    """Far more calls were in flight in the last tenth of the window than around its middle."""
    end_s = run.warmup_s + summary.window_s

    def mean(first: float, last: float) -> float:
        inside = [
            one.in_flight
            for one in summary.time_line
            if first <= (one.begin_s + one.end_s) / 2 / end_s <= last
        ]
        return sum(inside) / len(inside) if inside else 0.0

    if end_s <= 0:
        return False
    middle, last = mean(0.4, 0.6), mean(0.9, 1.0)
    return middle > 0 and last > _PILED_UP_CALLS and last > _PILED_UP * middle
