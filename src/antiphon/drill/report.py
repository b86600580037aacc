"""What came of a drill."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from antiphon.types import Seconds

from .plan import FaultKind
from .target import Attempt
from .verdict import Fault, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """One fault that happened: seen at the process itself, not only sent.

    Durations count from the signal. `detected_s`: until the gateway gave the worker up; None: it
    did not, as one that was stopped went on early enough. `back_s`: until it was joined again, in a
    new life if it was given up; None: not within a minute.
    """

    kind: FaultKind
    worker: str
    role: str
    pid: int
    at_s: Seconds
    detected_s: Seconds | None
    back_s: Seconds | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One request that a fault interrupted and that went on. Times in seconds.

    `detection_s`: from the fault to the next attempt. `recompute_s`: from there to its first new
    token, mostly prefill of what no survivor holds.
    """

    request: str
    worker: str
    detection_s: Seconds
    recompute_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """A drill passes if at least one fault happened and nothing is wrong."""

    asks: int
    faults: tuple[Injected, ...]
    findings: tuple[Finding, ...]
    leftovers: tuple[str, ...]
    """What should have drained to zero after quiet and did not."""
    growth: tuple[str, ...]
    """What the gateway or a surviving worker holds more of than before."""
    recoveries: tuple[Recovery, ...] | None = ()
    """None: not known, as the cluster's request log is not at hand."""
    longest_gap_s: Seconds = 0.0
    """The longest silence within a stream."""

    @property
    def passed(self) -> bool:
        """Nothing was lost, and that was put to the test."""
        return bool(self.faults) and not (self.findings or self.leftovers or self.growth)

    def count(self, fault: Fault) -> int:
        """Answers with this fault."""
        return sum(finding.fault is fault for finding in self.findings)

    def as_mapping(self) -> dict[str, Any]:
        """For JSON."""
        return {"passed": self.passed, **asdict(self)}

    def lines(self) -> Sequence[str]:
        """For people."""
        failed, wrong = self.count(Fault.FAILED), self.count(Fault.WRONG)
        lines = [f"{self.asks} requests, {failed} failed, {wrong} with wrong or repeated tokens"]
        lines += (f"  ask {one.number}: {one.fault}: {one.message}" for one in self.findings[:20])
        lines.append(f"{len(self.faults)} faults, each seen to happen")
        lines += (_fault_line(fault) for fault in self.faults)
        lines += _recovery_lines(self.recoveries)
        lines.append(f"longest silence within a stream: {self.longest_gap_s:.2f} s")
        lines += (f"not drained: {line}" for line in self.leftovers)
        lines += (f"growth: {line}" for line in self.growth)
        if not self.faults:
            lines.append("no fault happened: nothing was put to the test")
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
        fault = max(ended_by, key=lambda fault: (fault.at_s, fault.worker))
        found.append(
            Recovery(
                request=attempt.request,
                worker=fault.worker,
                detection_s=attempt.began_at - began_at - fault.at_s,
                recompute_s=attempt.first_token_at - attempt.began_at,
            )
        )
    return tuple(found)


def _ended(fault: Injected, attempt: Attempt, began_at: Seconds) -> bool:
    """It was this fault that made this attempt necessary."""
    if fault.detected_s is None or fault.worker not in attempt.workers_before:
        return False
    return 0.0 <= attempt.began_at - began_at - fault.at_s <= fault.detected_s


def _fault_line(fault: Injected) -> str:
    given_up = (
        "not given up" if fault.detected_s is None else f"given up after {fault.detected_s:.2f} s"
    )
    back = "never back" if fault.back_s is None else f"back after {fault.back_s:.2f} s"
    return (
        f"  {fault.at_s:7.2f} s  {fault.kind} {fault.worker} (pid {fault.pid}): {given_up}, {back}"
    )


def _recovery_lines(recoveries: Sequence[Recovery] | None) -> Sequence[str]:
    if recoveries is None:
        return ["which requests were interrupted is in the server's request log"]
    if not recoveries:
        return ["no request was interrupted by a fault"]
    detection = [one.detection_s for one in recoveries]
    recompute = [one.recompute_s for one in recoveries]
    return [
        f"{len(recoveries)} interrupted requests went on: detection median "
        f"{median(detection):.2f} s, worst {max(detection):.2f} s; then the next token after "
        f"median {median(recompute):.2f} s, worst {max(recompute):.2f} s"
    ]
