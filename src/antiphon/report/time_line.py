"""What happened when: a run cut into intervals of equal length."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from antiphon.core.goodput import Distribution, served, ttft_s
from antiphon.types import CallRecord, Seconds

_MOST_INTERVALS = 60
_SHORTEST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From `begin_s` until before `end_s`, from the run's start; warm-up is among them.

    `arrivals`: calls that were due in it, and `met`: those of them that met both targets, so that a
    stall shows where users came into it. `ttft_p50_s` and `ttft_p99_s` are theirs too; None: nobody
    who came then was served. `finished` and `failed` end in it, and `output_tokens` came in it.
    `in_flight`: calls that were sent and had not ended, averaged over the interval; one that was
    never sent ended when it would have been.
    """

    begin_s: Seconds
    end_s: Seconds
    arrivals: int
    met: int
    finished: int
    failed: int
    in_flight: float
    output_tokens: float
    ttft_p50_s: Seconds | None
    ttft_p99_s: Seconds | None

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens that came, of calls that failed later too."""
        return self.output_tokens / (self.end_s - self.begin_s)


def time_line(records: Sequence[CallRecord], met: Sequence[bool]) -> tuple[Interval, ...]:
    """All calls from the start to the last end; `met`: whether each met both targets.

    Intervals are 1, 2 or 5 times a power of ten of seconds long, at least 1 s, and at most 60. Over
    them, arrivals, ends and output tokens add up to those of all records.
    """
    if not records:
        return ()
    end_s = max(max(record.ended_at_s, record.due_at_s) for record in records)
    width_s = _width(end_s)
    edges = width_s * np.arange(floor(end_s / width_s) + 2)
    due = np.array([record.due_at_s for record in records])
    ended = np.array([record.ended_at_s for record in records])
    failed = np.array([record.error is not None for record in records])
    begun = np.array([record.sent_at_s for record in records])
    place = np.searchsorted(edges, due, side="right") - 1
    ttfts: list[list[float]] = [[] for _ in edges[1:]]
    for interval, record in zip(place.tolist(), records, strict=True):
        if served(record) and (first_s := ttft_s(record)) is not None:
            ttfts[interval].append(first_s)
    columns = zip(
        edges[:-1].tolist(),
        edges[1:].tolist(),
        _counted(edges, due),
        _counted(edges, due[np.array(met)]),
        _counted(edges, ended[~failed]),
        _counted(edges, ended[failed]),
        _overlap(edges, begun, ended),
        _tokens(edges, records),
        map(Distribution.of, ttfts),
        strict=True,
    )
    return tuple(
        Interval(
            begin_s=begin,
            end_s=end,
            arrivals=arrivals,
            met=meeting,
            finished=finishing,
            failed=failing,
            in_flight=in_flight,
            output_tokens=tokens,
            ttft_p50_s=None if ttft is None else ttft.p50,
            ttft_p99_s=None if ttft is None else ttft.p99,
        )
        for begin, end, arrivals, meeting, finishing, failing, in_flight, tokens, ttft in columns
    )


def _width(end_s: Seconds) -> Seconds:
    """The shortest round length of which at most `_MOST_INTERVALS` cover the run."""
    least = max(_SHORTEST_S, end_s / (_MOST_INTERVALS - 1))
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least)


def _counted(edges: np.ndarray, times: np.ndarray) -> list[int]:
    places = np.searchsorted(edges, times, side="right") - 1
    return np.bincount(places, minlength=len(edges) - 1).tolist()


def _overlap(edges: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[float]:
    """How many spans are open, averaged over each interval.

    The time that spans have been open until t is the sum of min(end, t) − min(begin, t): a
    difference of sums over sorted times, so that no span meets every interval.
    """
    open_until = _sum_of_minima(np.sort(ends), edges) - _sum_of_minima(np.sort(begins), edges)
    return (np.diff(open_until) / np.diff(edges)).tolist()


def _sum_of_minima(sorted_times: np.ndarray, limits: np.ndarray) -> np.ndarray:
    below = np.searchsorted(sorted_times, limits)
    sums = np.concatenate(([0.0], np.cumsum(sorted_times)))
    return sums[below] + limits * (len(sorted_times) - below)


def _tokens(edges: np.ndarray, records: Sequence[CallRecord]) -> list[float]:
    """Output tokens by when they came: a call's are shared evenly among its pieces."""
    totals = np.zeros(len(edges) - 1)
    for record in records:
        if record.output_tokens:
            times = np.array(record.token_at_s or (record.ended_at_s,))
            places = np.searchsorted(edges, times, side="right") - 1
            np.add.at(totals, places, record.output_tokens / len(times))
    return totals.tolist()
