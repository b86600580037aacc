"""How many calls met their targets."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from antiphon.types import CallRecord, Seconds

from .estimate import Z95, Estimate, design_effect, in_batches, share
from .verdict import Slos, Verdict, judge, slo_of

GOAL = 0.9
"""The share of calls that must meet both targets for a rate to be within goodput."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """Counts of calls: all of them, and those that met both targets, the one, the other.

    Every call that was planned counts. Those that failed, were refused or were never sent are
    misses, and so are the calls of a session after one that failed (`CallError.ABANDONED`): else a
    server would look the better the earlier it fails a session.

    `batches`: the same calls in parts that were due one after another, of all runs that were added;
    intervals are as wide as these scatter. Empty: the calls are taken for independent.
    """

    calls: int = 0
    met: int = 0
    ttft_met: int = 0
    tpot_met: int = 0
    batches: "tuple[Attainment, ...]" = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, records: Iterable[CallRecord], slos: Slos, *, warmup_s: Seconds = 0.0) -> Self:
        """The attainment of these calls, each by the targets of its class, after the warm-up."""
        by_class = dict(slos)
        verdicts = [
            judge(record, slo_of(record.slo_class, by_class))
            for record in sorted(after_warmup(records, warmup_s), key=lambda one: one.due_at_s)
        ]
        batches = tuple(cls._count(part) for part in in_batches(verdicts))
        return replace(cls._count(verdicts), batches=batches)

    @classmethod
    def _count(cls, verdicts: Sequence[Verdict]) -> Self:
        return cls(
            calls=len(verdicts),
            met=sum(verdict.met for verdict in verdicts),
            ttft_met=sum(verdict.ttft_met for verdict in verdicts),
            tpot_met=sum(verdict.tpot_met for verdict in verdicts),
        )

    def __add__(self, other: "Attainment") -> "Attainment":
        return Attainment(
            calls=self.calls + other.calls,
            met=self.met + other.met,
            ttft_met=self.ttft_met + other.ttft_met,
            tpot_met=self.tpot_met + other.tpot_met,
            batches=self.batches + other.batches,
        )

    def both(self, z: float = Z95) -> Estimate:
        """The share that met both targets: what goodput looks at."""
        return self._share(lambda one: one.met, z)

    def ttft(self, z: float = Z95) -> Estimate:
        """The share that met the target for the first token."""
        return self._share(lambda one: one.ttft_met, z)

    def tpot(self, z: float = Z95) -> Estimate:
        """The share that met the target per token; calls of one token, if served, do."""
        return self._share(lambda one: one.tpot_met, z)

    def _share(self, met: "Callable[[Attainment], int]", z: float) -> Estimate:
        alike = design_effect([(met(batch), batch.calls) for batch in self.batches])
        return share(met(self), self.calls, z, design_effect=alike)


def after_warmup(records: Iterable[CallRecord], warmup_s: Seconds) -> tuple[CallRecord, ...]:
    """The calls that count: due at `warmup_s` or later, in the order given.

    By when they were due, not by when they ended: that a server is slow moves no call out.
    """
    return tuple(record for record in records if record.due_at_s >= warmup_s)
