"""What many runs went through, and how well the cluster bore it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon.core.faults import Kind
from antiphon.types import Seconds

from .cluster_run import LAWS, Broken, ClusterReport
from .drawn_cluster import Family

WORST = 3
"""Slowest recoveries that are named, of each family."""


@dataclass(frozen=True, slots=True)
class SeedRun:
    """The outcome of one seed in one family: a report, or the law that it broke."""

    seed: int
    family: Family
    report: ClusterReport | None
    broken: Broken | None


@dataclass(frozen=True, slots=True, order=True)
class Recovery:
    """How long after its last fault a run had answered whoever was waiting then."""

    seconds: Seconds
    seed: int


@dataclass(slots=True)
class FamilyScore:
    """Sums over the runs of a family."""

    runs: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    recoveries: list[Recovery] = field(default_factory=list[Recovery])
    """The slowest first."""

    @property
    def faults(self) -> dict[str, int]:
        """How often each kind of fault happened: each was seen to have left its mark."""
        return {kind.value: self.counts[kind.value] for kind in Kind if self.counts[kind.value]}

    @property
    def outcomes(self) -> dict[str, int]:
        """How requests ended."""
        begin = "outcome "
        return {
            name.removeprefix(begin): count
            for name, count in sorted(self.counts.items())
            if name.startswith(begin)
        }

    def add(self, report: ClusterReport, seed: int) -> None:
        """Mutates: one more run that broke no law."""
        self.counts += report.counts
        if report.recovery_s is not None:
            worse = sorted([*self.recoveries, Recovery(report.recovery_s, seed)], key=_slowest)
            self.recoveries = worse[:WORST]


def _slowest(one: Recovery) -> tuple[float, int]:
    return -one.seconds, one.seed


class Scorecard:
    """Sums over many runs. The order in which they are added does not matter."""

    def __init__(self) -> None:
        self.families: dict[Family, FamilyScore] = {}
        self._broken: list[SeedRun] = []

    @property
    def runs(self) -> int:
        """Runs so far."""
        return sum(score.runs for score in self.families.values())

    @property
    def broken(self) -> Sequence[SeedRun]:
        """Runs that broke a law, by seed."""
        return sorted(self._broken, key=lambda run: (run.seed, list(Family).index(run.family)))

    def add(self, run: SeedRun) -> None:
        """Mutates: one more run."""
        score = self.families.setdefault(run.family, FamilyScore())
        score.runs += 1
        if run.report is not None:
            score.add(run.report, run.seed)
        if run.broken is not None:
            self._broken.append(run)

    def firsts(self, most: int) -> Sequence[SeedRun]:
        """Of each law that was broken the first run that broke it: as many as that."""
        found: dict[str, SeedRun] = {}
        for run in self.broken:
            if run.broken is not None:
                found.setdefault(run.broken.law, run)
        return list(found.values())[:most]

    def as_plain(self) -> dict[str, Any]:
        """For `--json`."""
        families = [family for family in Family if family in self.families]
        return {
            "runs": self.runs,
            "laws": dict(LAWS),
            "families": {
                family.value: {
                    "runs": score.runs,
                    "faults": score.faults,
                    "outcomes": score.outcomes,
                    "attempts_after_the_first": score.counts["attempts after the first"],
                    "recomputed_tokens": score.counts["recomputed tokens"],
                    "slowest_recoveries": [
                        {"seed": one.seed, "recovery_s": round(one.seconds, 6)}
                        for one in score.recoveries
                    ],
                }
                for family in families
                for score in (self.families[family],)
            },
            "broken": [
                {
                    "seed": run.seed,
                    "family": run.family.value,
                    "law": run.broken.law,
                    "problem": run.broken.problem,
                }
                for run in self.broken
                if run.broken is not None
            ],
        }
