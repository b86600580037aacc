"""How far a load is, and how it goes so far: for whoever looks on."""

from collections import deque
from collections.abc import Callable

from antiphon.core.goodput import judge, percentile, slo_of, ttft_s
from antiphon.types import CallError, CallRecord, LoadRun, Seconds

_RECENT = 500
"""Percentiles are of so many calls: the last ones say how it goes now, and cost little to sort."""
_NEVER_SENT = (CallError.ABANDONED, CallError.UNSENT)


class LoadTally:
    """Counts a run as far as it has come.

    `meets` says whether a call that ended met its targets; calls due before `warmup_s` are not
    asked about. `duration_s` is that of the load, without the wait for its last answers. Times that
    are handed in are on one clock, whichever.
    """

    def __init__(
        self, meets: Callable[[CallRecord], bool], *, duration_s: Seconds, warmup_s: Seconds
    ) -> None:
        self._meets = meets
        self._duration_s = duration_s
        self._warmup_s = warmup_s
        self._started_at: Seconds | None = None
        self._sent = self._answered = self._ended = self._failed = self._judged = self._met = 0
        self._ttfts: deque[Seconds] = deque(maxlen=_RECENT)

    def sent(self, at_s: Seconds, now: Seconds) -> None:
        """Mutates: a call went out, `at_s` after the start of the run."""
        if self._started_at is None:
            self._started_at = now - at_s
        self._sent += 1

    def sent_by(self, calls: int, now: Seconds) -> None:
        """Mutates: so many calls went out by now, of a run that began at 0."""
        if self._started_at is None and calls:
            self._started_at = 0.0
        self._sent = calls

    def ended(self, record: CallRecord) -> None:
        """Mutates: this call is over, or will never be sent."""
        self._ended += 1
        self._answered += record.error not in _NEVER_SENT
        self._failed += record.error is not None
        if record.error is None and (first_s := ttft_s(record)) is not None:
            self._ttfts.append(first_s)
        if record.due_at_s >= self._warmup_s:
            self._judged += 1
            self._met += self._meets(record)

    def line(self, now: Seconds) -> str:
        """How it stands now."""
        if self._started_at is None:
            return "the first request is to come"
        since_s = now - self._started_at
        parts = [
            self._when(since_s),
            f"{self._sent} sent",
            f"{self._sent - self._answered} open",
            f"{self._ended - self._failed} ok",
            f"{self._failed} failed",
            f"{self._sent / max(min(since_s, self._duration_s), 1.0):.2f}/s",
        ]
        if self._judged:
            parts.append(f"{self._met / self._judged:.0%} within targets")
        elif since_s < self._warmup_s:
            parts.append("warming up")
        if self._ttfts:
            recent = sorted(self._ttfts)
            p50, p99 = percentile(recent, 0.5), percentile(recent, 0.99)
            parts.append(f"TTFT p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
        return " · ".join(parts)

    def _when(self, since_s: Seconds) -> str:
        if since_s <= self._duration_s:
            return f"{since_s:.0f} of {self._duration_s:.0f} s"
        return f"waiting for the last answers, {since_s - self._duration_s:.0f} s"


def meets(run: LoadRun) -> Callable[[CallRecord], bool]:
    """Whether a call met the targets of its class in that run."""
    by_class = dict(run.slos)
    return lambda record: judge(record, slo_of(record.slo_class, by_class)).met
