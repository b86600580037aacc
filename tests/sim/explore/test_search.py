"""Many runs: every seed once, the same sums in whatever order and number of processes."""

import json
from collections import Counter

from antiphon.sim.explore.cluster_run import LAWS, Broken, ClusterReport, Parts, outcome_of
from antiphon.sim.explore.drawn_cluster import Family
from antiphon.sim.explore.scorecard import WORST, Scorecard, SeedRun
from antiphon.sim.explore.search import run_seed, search
from antiphon.testing.faulty_cluster import book_that_loses_resume_points


def test_the_sums_do_not_depend_on_processes() -> None:
    cards: list[str] = []
    for jobs in (1, 2):
        card = Scorecard()
        for run in search(range(5, 8), (Family.HONEST, Family.STORE), jobs=jobs):
            card.add(run)
        assert card.runs == 6
        cards.append(json.dumps(card.as_plain(), sort_keys=True))
    assert cards[0] == cards[1]


def test_other_processes_run_the_parts_that_they_are_given() -> None:
    parts = Parts(make_book=book_that_loses_resume_points)
    card = Scorecard()
    for run in search(range(2), (Family.HONEST,), jobs=2, parts=parts):
        card.add(run)
    assert [run.seed for run in card.broken if run.broken and run.broken.law == "I14"]


def test_a_run_that_raises_anything_else_is_a_find_too() -> None:
    def run() -> ClusterReport:
        raise KeyError("r0")

    report, broken = outcome_of(run)
    assert report is None
    assert broken is not None
    assert broken.law == "KeyError"
    assert "test_search" in broken.problem


def seed_run(seed: int, recovery_s: float | None = None, law: str | None = None) -> SeedRun:
    if law is not None:
        return SeedRun(seed, Family.HONEST, None, Broken(law, f"{law}: at {seed}"))
    counts = Counter({"crash": 1, "outcome finished": 2, "outcome failed": seed == 2})
    return SeedRun(seed, Family.HONEST, ClusterReport(1.0, recovery_s, counts), None)


def test_sums_do_not_depend_on_the_order() -> None:
    runs = [
        *(seed_run(seed, recovery_s=seed % 4 / 10) for seed in range(8)),
        *(seed_run(seed, law=law) for seed, law in ((9, "I4"), (8, "I4"), (10, "I5"))),
        seed_run(11),
    ]
    cards: list[Scorecard] = []
    for ordered in (runs, runs[::-1]):
        card = Scorecard()
        for run in ordered:
            card.add(run)
        cards.append(card)
    assert cards[0].as_plain() == cards[1].as_plain()
    score = cards[0].families[Family.HONEST]
    assert score.runs == 12
    assert score.faults == {"crash": 9}
    assert score.outcomes == {"failed": 1, "finished": 18}
    assert [(one.seconds, one.seed) for one in score.recoveries] == [(0.3, 3), (0.3, 7), (0.2, 2)]
    assert len(score.recoveries) == WORST
    assert [run.seed for run in cards[1].broken] == [8, 9, 10]
    assert [run.seed for run in cards[1].firsts(5)] == [8, 10]
    assert [run.seed for run in cards[1].firsts(1)] == [8]
    assert "I35" in LAWS


def test_one_seed_is_one_run() -> None:
    assert run_seed(3, Family.GATEWAY) == run_seed(3, Family.GATEWAY)
    assert run_seed(3, Family.GATEWAY).report is not None
