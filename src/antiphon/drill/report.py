"""What came of a drill."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from antiphon.core.faults import CallOutcome, Impact, Resilience
from antiphon.report.wording import plural
from antiphon.types import Seconds

from .target import Attempt
from .verdict import Finding, Flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """One fault that happened: seen at the thing itself, not only sent. `evidence` says what.

    Durations count from the fault. `gone_s`: until a process that was killed was gone, which takes
    the system some time on a busy machine; None: it was not killed. `detected_s`: until the gateway
    gave the worker up; None: it did not. `back_s`: until all was as before, a worker joined again;
    None: not within a minute. `breaks_for_s`: so long it may break streams that nobody can go on
    with; None: it breaks none.
    """

    kind: str
    target: str
    role: str
    pid: int
    at_s: Seconds
    detected_s: Seconds | None
    back_s: Seconds | None
    breaks_for_s: Seconds | None = None
    gone_s: Seconds | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInjected:
    """A fault that was due and could not be done. `entry`: of the plan, from 1. `fatal`: it had its
    own moment, so that the plan was not played without it."""

    kind: str
    target: str
    entry: int
    why: str
    fatal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One request that a fault interrupted and that went on. Times in seconds.

    `detection_s`: from the fault, or from the moment at which a killed process was seen to be gone,
    to the next attempt; 0 if the gateway saw it first. `recompute_s`: from there to its first new
    token, mostly prefill of what no survivor holds.
    """

    request: str
    worker: str
    detection_s: Seconds
    recompute_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What was done again: requests with several attempts, and tokens that were computed again."""

    requests: int
    wasted_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """A drill passes if all its faults happened, at least one, and nothing is wrong."""

    asks: int
    faults: tuple[Injected, ...]
    not_injected: tuple[NotInjected, ...] = ()
    findings: tuple[Finding, ...]
    broken: tuple[Finding, ...] = ()
    """Answers that a fault of the plan had to break: with their connection, which it cut, or for
    want of a gateway."""
    leftovers: tuple[str, ...]
    """What should have drained to zero after quiet and did not."""
    growth: tuple[str, ...]
    """What a process that lived through it holds more of than before."""
    recoveries: tuple[Recovery, ...] | None = ()
    """None: not known, as the cluster's request log is not at hand."""
    repeats: Repeats | None = None
    """None: as with `recoveries`."""
    longest_gap_s: Seconds = 0.0
    """The longest silence within a stream."""
    resilience: Resilience | None = None
    """None: no fault happened."""
    calls: tuple[CallOutcome, ...] = ()
    """In order of due times; not part of the JSON."""

    @property
    def passed(self) -> bool:
        """Nothing was lost, and that was put to the test."""
        missed = any(one.fatal for one in self.not_injected)
        wrong = self.findings or self.leftovers or self.growth or missed
        return bool(self.faults) and not wrong

    def count(self, flaw: Flaw) -> int:
        """Answers with this flaw."""
        return sum(finding.flaw is flaw for finding in self.findings)

    def as_mapping(self) -> dict[str, Any]:
        """For JSON."""
        tree = asdict(self)
        del tree["calls"]
        return {"passed": self.passed, **tree}

    def lines(self) -> Sequence[str]:
        """For people."""
        failed, wrong = self.count(Flaw.FAILED), self.count(Flaw.WRONG)
        asks = plural(self.asks, "request")
        lines = [f"{asks}, {failed} failed, {wrong} with wrong or repeated tokens"]
        lines += (f"  ask {one.number}: {one.flaw}: {one.message}" for one in self.findings[:20])
        if self.broken:
            lines.append(
                f"{len(self.broken)} were broken with their connection, or refused while the "
                f"gateway started anew"
            )
        lines.append(f"{plural(len(self.faults), 'fault')}, each seen to happen")
        impacts = self.resilience.impacts if self.resilience else (None,) * len(self.faults)
        lines += (_fault_line(*pair) for pair in zip(self.faults, impacts, strict=True))
        lines += _not_injected_lines(self.not_injected)
        lines += _recovery_lines(self.recoveries)
        lines += _cost_lines(self)
        lines.append(f"longest silence within a stream: {self.longest_gap_s:.2f} s")
        lines += (f"not drained: {line}" for line in self.leftovers)
        lines += (f"growth: {line}" for line in self.growth)
        lines.append("passed" if self.passed else "FAILED")
        return lines


def recoveries(
    attempts: Sequence[Attempt], faults: Sequence[Injected], began_at: Seconds
) -> tuple[Recovery, ...]:
    """What each attempt lost that follows one which a fault ended.

    `began_at`: the moment from which the faults' times count, on the attempts' clock.

    A fault ended the attempt before if its victim was among that attempt's workers and the new one
    began between the signal and the detection. Other new attempts (a full queue, a drain) are none.
    """
    found: list[Recovery] = []
    for attempt in attempts:
        ended_by = [fault for fault in faults if _ended(fault, attempt, began_at)]
        if not ended_by or attempt.first_token_at is None:
            continue
        fault = max(ended_by, key=lambda fault: (fault.at_s, fault.target))
        noticeable_at = began_at + fault.at_s + (fault.gone_s or 0.0)
        found.append(
            Recovery(
                request=attempt.request,
                worker=fault.target,
                detection_s=max(attempt.began_at - noticeable_at, 0.0),
                recompute_s=attempt.first_token_at - attempt.began_at,
            )
        )
    return tuple(found)


def repeats(attempts: Sequence[Attempt], began_at: Seconds) -> Repeats:
    """What attempts that began after `began_at` did again."""
    later = [attempt for attempt in attempts if attempt.began_at >= began_at]
    return Repeats(
        requests=len({attempt.request for attempt in later}),
        wasted_tokens=sum(attempt.computed_tokens for attempt in later),
    )


def _ended(fault: Injected, attempt: Attempt, began_at: Seconds) -> bool:
    """It was this fault that made this attempt necessary."""
    if fault.detected_s is None or fault.target not in attempt.workers_before:
        return False
    return 0.0 <= attempt.began_at - began_at - fault.at_s <= fault.detected_s


def _fault_line(fault: Injected, impact: Impact | None) -> str:
    facts = [fault.evidence] if fault.evidence else []
    if fault.role != fault.target:
        facts.append(
            "not given up"
            if fault.detected_s is None
            else f"given up after {fault.detected_s:.2f} s"
        )
    facts.append("never back" if fault.back_s is None else f"back after {fault.back_s:.2f} s")
    if impact is not None:
        facts.append(_impact_text(impact))
    return (
        f"  {fault.at_s:7.2f} s  {fault.kind} {fault.target} (pid {fault.pid}): {', '.join(facts)}"
    )


def _impact_text(impact: Impact) -> str:
    if impact.recovery_s is None and not impact.lost_calls:
        return "no call before the next fault"
    if impact.recovery_s is None:
        return f"goodput not within 95 % before the next fault, {impact.lost_calls:.1f} calls lost"
    if not impact.recovery_s and not impact.lost_calls:
        return "no goodput lost"
    return f"goodput at 95 % after {impact.recovery_s:.2f} s, {impact.lost_calls:.1f} calls lost"


def _not_injected_lines(missed: Sequence[NotInjected]) -> Sequence[str]:
    """One line for each entry of the plan and reason."""
    counts: dict[tuple[int, str, str, str, bool], int] = {}
    for one in missed:
        key = (one.entry, one.kind, one.target, one.why, one.fatal)
        counts[key] = counts.get(key, 0) + 1
    return [
        f"  {'FAILED: ' if fatal else ''}fault {entry}, {kind} {target}: {plural(times, 'time')} "
        f"not done: {why}"
        for (entry, kind, target, why, fatal), times in sorted(counts.items())
    ]


def _recovery_lines(recoveries: Sequence[Recovery] | None) -> Sequence[str]:
    if recoveries is None:
        return ["which requests were interrupted is in the server's request log"]
    if not recoveries:
        return ["no request was interrupted by a fault"]
    detection = [one.detection_s for one in recoveries]
    recompute = [one.recompute_s for one in recoveries]
    return [
        f"{plural(len(recoveries), 'interrupted request')} went on: detection median "
        f"{median(detection):.2f} s, worst {max(detection):.2f} s; then the next token after "
        f"median {median(recompute):.2f} s, worst {max(recompute):.2f} s"
    ]


def _cost_lines(report: DrillReport) -> Sequence[str]:
    lines: list[str] = []
    if report.repeats is not None:
        lines.append(
            f"tried again: {plural(report.repeats.requests, 'request')}; computed again for them: "
            f"{plural(report.repeats.wasted_tokens, 'token')}"
        )
    if report.resilience is not None:
        lines.append(
            f"goodput: {report.resilience.lost_calls:.1f} of {plural(report.asks, 'call')} lost "
            f"({report.resilience.lost_share:.1%}) against {report.resilience.reference:.0%} "
            f"within targets without faults"
        )
    else:
        lines.append(
            "no fault happened, nothing was put to the test: a random fault needs a second worker "
            "that serves the same phase (--prefill 2 --decode 2)"
        )
    return lines
