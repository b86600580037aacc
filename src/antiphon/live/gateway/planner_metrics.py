"""What Prometheus may read of the planner of pool sizes."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from antiphon.core.planner import Decision
from antiphon.types import Role

_ROLE_LABELS = ("model_name", "role")


class PlannerCounts:
    """What a planner has decided, and what became of it. `moves`: workers by deed (add, take,
    flip) and the role that they had, or were to have."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.decisions = 0
        self.latest: Decision | None = None
        self.moves: Counter[tuple[str, Role]] = Counter()
        self.failed_adds = 0


def planner_families(model: str, seen: PlannerCounts | None) -> Iterator[Metric]:
    """One sample a role that the planner counts. Every family is there always; with `seen` None,
    there is no planner, without samples."""
    latest = None if seen is None else seen.latest
    for name, text, sizes in (
        (
            "antiphon_planner_target_workers",
            "Workers that there should be.",
            () if latest is None else latest.target,
        ),
        (
            "antiphon_planner_needed_workers",
            "The same before budget and calm.",
            () if latest is None else latest.wanted,
        ),
    ):
        family = GaugeMetricFamily(name, text, labels=_ROLE_LABELS)
        for role, workers in sizes:
            family.add_metric([model, role.value], workers)
        yield family
    for kind, name, text, value in (
        (
            GaugeMetricFamily,
            "antiphon_planner_expected_requests_per_second",
            "Highest rate of its forecast.",
            None if latest is None else latest.expected_per_s,
        ),
        (
            GaugeMetricFamily,
            "antiphon_planner_budget_workers",
            "Most workers of all roles.",
            None if seen is None else seen.budget,
        ),
        (
            CounterMetricFamily,
            "antiphon_planner_decisions",
            "Intervals that it has decided on.",
            None if seen is None else seen.decisions,
        ),
        (
            CounterMetricFamily,
            "antiphon_planner_failed_adds",
            "Workers that it asked for and that could not be started.",
            None if seen is None else seen.failed_adds,
        ),
    ):
        family = kind(name, text, labels=("model_name",))
        if value is not None:
            family.add_metric([model], value)
        yield family
    moves = CounterMetricFamily(
        "antiphon_planner_moves",
        "Workers that it has added, taken or flipped, by the role that they had or got.",
        labels=(*_ROLE_LABELS, "move"),
    )
    for (move, role), count in sorted(() if seen is None else seen.moves.items()):
        moves.add_metric([model, role.value, move], count)
    yield moves
