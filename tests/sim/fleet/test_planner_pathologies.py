"""What planners of other systems have been seen to do, and this one must not.

Each scenario has a control: the fleet that the same load gets when nobody plans, or plans blindly.
"""

from dataclasses import replace

from steering_kit import DECODE, PREFILL, RULES, SLO, TOO_FAST, Blind, Run, slow_when_new, told

from antiphon.core.goodput import Attainment
from antiphon.core.planner import Add, Flip, Planner, Take


def sizes(run: Run) -> dict[str, int]:
    return {role.value: count for role, count in run.steering.sizes[-1][1].items()}


def test_a_constant_load_does_not_make_a_pool_oscillate() -> None:
    run = Run((1, 1), 8.0, 200.0, Planner(RULES, told())).run()
    assert run.turns <= 2
    assert run.met > 0.9
    late = [now for at, now in run.steering.sizes if at > 100]
    assert all(now == late[0] for now in late), "and it has settled"


def test_queues_are_seen_though_the_profile_says_that_one_worker_is_enough() -> None:
    """The profile is three times too fast: a floor alone would hold one prefill worker for ever."""
    wrong = told(TOO_FAST)
    rules = replace(RULES, interval_s=2.5, ready_s=2.5)
    run = Run((1, 1), 20.0, 60.0, Planner(rules, wrong), rules).run()
    blind = Run((1, 1), 20.0, 20.0, Blind(rules, wrong), rules).run()
    assert blind.met < 0.3
    assert run.met > 0.6
    assert sizes(run)["prefill"] >= 3
    assert sizes(blind) == {"prefill": 1, "decode": 1}


def test_cold_starts_poison_nothing() -> None:
    warm = Run((1, 1), 13.0, 70.0, Planner(RULES, told())).run()
    cold = Run((1, 1), 13.0, 70.0, Planner(RULES, told()))
    slow_when_new(cold, 5.0, 4.0)
    cold.run()
    assert cold.met < warm.met, "they were slow indeed"
    assert cold.met > 0.5
    assert sizes(cold) == sizes(warm)
    assert cold.turns <= 2


def test_a_worker_that_an_operator_adds_is_left_alone() -> None:
    run = Run((2, 1), 4.0, 100.0, Planner(RULES, told()))
    before: list[dict[str, int]] = []

    def edit() -> None:
        before.append(sizes(run))
        run.steering.add_by_hand(DECODE)

    run.fleet.at(52.0, edit)
    run.run()
    assert sizes(run) == before[0] | {"decode": before[0]["decode"] + 1}
    later = [move for one in run.steering.decisions if one.at > 52.0 for move in one.moves]
    assert later == [], "neither taken back, nor made up for elsewhere"
    assert run.met > 0.9


def test_an_operators_worker_counts_when_the_load_grows() -> None:
    """The control of the one above: without an operator the planner adds what it needs itself."""
    run = Run((1, 1), 13.0, 30.0, Planner(RULES, told())).run()
    added = sum(
        move.workers
        for one in run.steering.decisions
        for move in one.moves
        if isinstance(move, Add) and move.role is PREFILL
    )
    helped = Run((1, 1), 13.0, 30.0, Planner(RULES, told()))
    helped.fleet.at(1.0, lambda: helped.steering.add_by_hand(PREFILL))
    helped.run()
    again = sum(
        move.workers
        for one in helped.steering.decisions
        for move in one.moves
        if isinstance(move, Add) and move.role is PREFILL
    )
    assert again == added - 1
    assert not any(
        isinstance(move, Take) for one in helped.steering.decisions for move in one.moves
    )


def test_a_burst_does_not_keep_a_fleet_large_for_ever() -> None:
    """A floor of what latencies once were would: nothing that is over may block who is idle now."""
    run = Run((1, 1), 5.0, 150.0, Planner(RULES, told()), burst=(20.0, 120)).run()
    most = max(sum(now.values()) for _, now in run.steering.sizes)
    assert most >= 4, "it grew"
    assert sum(sizes(run).values()) <= 3, "and went back"
    assert run.turns <= 2
    late = [one for one in run.records if one.due_at_s > 60.0]
    assert Attainment.of(late, (("", SLO),)).both().value > 0.9


def test_a_full_budget_does_not_make_roles_flip_back_and_forth() -> None:
    """More comes than the budget serves: both roles want workers, and neither may have them all."""
    rules = replace(RULES, budget=4)
    run = Run((2, 2), 18.0, 100.0, Planner(rules, told()), rules).run()
    flips = [move for one in run.steering.decisions for move in one.moves if isinstance(move, Flip)]
    assert len(flips) <= 2
    assert run.turns <= 2
    assert sum(sizes(run).values()) == 4
