"""What came of a run, in numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from antiphon.core.goodput import (
    Attainment,
    Distribution,
    Estimate,
    after_warmup,
    e2e_s,
    gaps_s,
    judge,
    served,
    share_in_order,
    slo_of,
    tpot_s,
    ttft_s,
)
from antiphon.types import CallError, CallRecord, LoadRun, Seconds, Slo, TokenSource

from .fault_costs import FaultCosts
from .time_line import Interval, time_line

_NOT_SENT = (CallError.UNSENT, CallError.ABANDONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Calls that belong together: of an SLO class, of a model, or all.

    `slo`: what they were held to; None: not all to the same. `both`, `ttft` and `tpot` are shares
    of all its calls, None if there are none; one that failed met nothing.
    """

    name: str
    slo: Slo | None
    ok: int
    attainment: Attainment
    both: Estimate | None
    ttft: Estimate | None
    tpot: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Calls that failed alike. `example`: what was said of one of them, or nothing."""

    kind: CallError
    calls: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Whole sessions (a chat, an agent's workflow) of which no call was due in the warm-up.

    `met`: those all of whose calls met their targets; `share`: the same as one, None
    without any. `e2e`: of those all
    of whose calls came to their end, from when the first was due to the last end. `most_calls`: of
    a session.
    """

    sessions: int
    met: int
    share: Estimate | None
    most_calls: int
    e2e: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What came of the calls that were due after the warm-up; only `time_line` is of all.

    Latencies are of calls that were served: came to their end, with content. They count from when
    a call was due. `itl` are the times between a piece of content and the next, of all these calls
    together. Tokens and throughput are of the `ok` calls, which came to their end. Attainment and
    goodput hold all others against the server. `prompt_tokens` and `cached_tokens`: None where the
    server reported none of any call.

    `window_s`: in which calls were due, what `offered_per_s` and `goodput_per_s` (calls that met
    both targets, per device) are divided by. `span_s`: until the last of them was answered, what
    throughput is divided by. `lateness`: how late calls were sent. `faults`: of a plan; None: there
    was none, or nobody knows what came of it.
    """

    warmup_calls: int
    calls: int
    ok: int
    served: int
    failures: tuple[Failures, ...]
    overall: Group
    classes: tuple[Group, ...]
    models: tuple[Group, ...]
    window_s: Seconds
    span_s: Seconds
    offered_per_s: float
    goodput_per_s: float
    ok_per_s: float
    prompt_tokens_per_s: float | None
    output_tokens_per_s: float
    ttft: Distribution | None
    tpot: Distribution | None
    itl: Distribution | None
    e2e: Distribution | None
    lateness: Distribution | None
    prompt_tokens: int | None
    output_tokens: int
    cached_tokens: int | None
    counted_by: tuple[tuple[TokenSource, int], ...]
    sessions: Sessions
    time_line: tuple[Interval, ...]
    faults: FaultCosts | None = None

    @property
    def cached_share(self) -> float | None:
        """Of the prompts' tokens, those that needed no compute; None: nobody knows."""
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return self.cached_tokens / self.prompt_tokens


def summarise(run: LoadRun, records: Iterable[CallRecord]) -> RunSummary:
    """Count a run's calls, in any order: the time is linear, but for sorting."""
    everything = sorted(records, key=lambda record: record.number)
    counted = list(after_warmup(everything, run.warmup_s))
    ok = [record for record in counted if record.error is None]
    times = Latencies.of(counted)
    window_s = max(run.duration_s, *(record.due_at_s for record in counted), 0.0) - run.warmup_s
    last_s = max((record.ended_at_s for record in ok), default=0.0)
    span_s = max(window_s, last_s - run.warmup_s)
    overall = _group("", counted, run)
    prompt_tokens = _known(record.prompt_tokens for record in ok)
    return RunSummary(
        warmup_calls=len(everything) - len(counted),
        calls=len(counted),
        ok=len(ok),
        served=len(times.e2e_s),
        failures=_failures(counted),
        overall=overall,
        classes=_groups(counted, run, lambda record: record.slo_class),
        models=_groups(counted, run, lambda record: record.model),
        window_s=max(0.0, window_s),
        span_s=max(0.0, span_s),
        offered_per_s=_rate(len(counted), window_s),
        goodput_per_s=_rate(overall.attainment.met, window_s) / run.devices,
        ok_per_s=_rate(len(ok), span_s),
        prompt_tokens_per_s=None if prompt_tokens is None else _rate(prompt_tokens, span_s),
        output_tokens_per_s=_rate(sum(record.output_tokens for record in ok), span_s),
        ttft=Distribution.of(times.ttft_s),
        tpot=Distribution.of(times.tpot_s),
        itl=Distribution.of(times.itl_s),
        e2e=Distribution.of(times.e2e_s),
        lateness=Distribution.of(
            record.sent_at_s - record.due_at_s
            for record in counted
            if record.error not in _NOT_SENT
        ),
        prompt_tokens=prompt_tokens,
        output_tokens=sum(record.output_tokens for record in ok),
        cached_tokens=_known(record.cached_tokens for record in ok),
        counted_by=_counted_by(ok),
        sessions=_sessions(everything, run),
        time_line=time_line(everything, [_met(record, run) for record in everything]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """All values of the four latencies, in the order in which their calls were due.

    Only of calls that were served. That order shows how alike neighbours fared, and so how sure a
    percentile is (`percentile_estimate`).
    """

    ttft_s: Sequence[Seconds]
    tpot_s: Sequence[Seconds]
    itl_s: Sequence[Seconds]
    e2e_s: Sequence[Seconds]

    @classmethod
    def of(cls, records: Iterable[CallRecord]) -> "Latencies":
        """The latencies of these calls; who has no TPOT is not among those."""
        whole = sorted(filter(served, records), key=lambda record: record.due_at_s)
        return cls(
            ttft_s=[value for value in map(ttft_s, whole) if value is not None],
            tpot_s=[value for value in map(tpot_s, whole) if value is not None],
            itl_s=list(chain.from_iterable(map(gaps_s, whole))),
            e2e_s=list(map(e2e_s, whole)),
        )


def _met(record: CallRecord, run: LoadRun) -> bool:
    return judge(record, slo_of(record.slo_class, dict(run.slos))).met


def _group(name: str, records: Sequence[CallRecord], run: LoadRun) -> Group:
    by_class = dict(run.slos)
    slos = {slo_of(record.slo_class, by_class) for record in records} or {slo_of("", by_class)}
    attainment = Attainment.of(records, run.slos)
    return Group(
        name=name,
        slo=slos.pop() if len(slos) == 1 else None,
        ok=sum(record.error is None for record in records),
        attainment=attainment,
        both=attainment.both() if records else None,
        ttft=attainment.ttft() if records else None,
        tpot=attainment.tpot() if records else None,
    )


def _groups(
    records: Sequence[CallRecord], run: LoadRun, name_of: Callable[[CallRecord], str]
) -> tuple[Group, ...]:
    """In order of their names."""
    members: dict[str, list[CallRecord]] = {}
    for record in records:
        members.setdefault(name_of(record), []).append(record)
    return tuple(_group(name, members[name], run) for name in sorted(members))


def _failures(records: Sequence[CallRecord]) -> tuple[Failures, ...]:
    """The most frequent first."""
    messages: dict[CallError, list[str]] = {}
    for record in records:
        if record.error is not None:
            messages.setdefault(record.error, []).append(record.message)
    failures = [
        Failures(kind=kind, calls=len(said), example=next(filter(None, said), ""))
        for kind, said in messages.items()
    ]
    return tuple(sorted(failures, key=lambda one: (-one.calls, one.kind)))


def _counted_by(records: Sequence[CallRecord]) -> tuple[tuple[TokenSource, int], ...]:
    sources = Counter(record.counted_by for record in records)
    return tuple((source, sources[source]) for source in TokenSource if source in sources)


def _sessions(records: Sequence[CallRecord], run: LoadRun) -> Sessions:
    members: dict[int, list[CallRecord]] = {}
    for record in records:
        members.setdefault(record.session, []).append(record)
    begins = {number: min(one.due_at_s for one in calls) for number, calls in members.items()}
    whole = [
        number
        for number in sorted(begins, key=begins.__getitem__)
        if begins[number] >= run.warmup_s
    ]
    met = [all(_met(record, run) for record in members[number]) for number in whole]
    return Sessions(
        sessions=len(whole),
        met=sum(met),
        share=share_in_order(met) if met else None,
        most_calls=max((len(members[number]) for number in whole), default=0),
        e2e=Distribution.of(
            max(record.ended_at_s for record in members[number]) - begins[number]
            for number in whole
            if all(record.error is None for record in members[number])
        ),
    )


def _known(counts: Iterable[int | None]) -> int | None:
    """The sum of what was reported; None if nothing was."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _rate(amount: float, duration_s: Seconds) -> float:
    return amount / duration_s if duration_s > 0 else 0.0
