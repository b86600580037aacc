"""Laws of the search: pruning loses nothing, the answer is the best, and equal runs are equal."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.placement import (
    Candidate,
    Colocated,
    Instance,
    Judged,
    Look,
    Objective,
    PlacementSearch,
    SearchEffort,
    Space,
    Split,
    Trial,
    promises,
)
from antiphon.errors import BugError

INSTANCES = tuple(
    Instance(device=device, tensor=tensor) for device in ("h20", "h800") for tensor in (1, 2)
)
PLENTY = dict.fromkeys(INSTANCES, 99.0)
EXACT = SearchEffort(slack=0.0, most_trials=10**6, seeds=1, round_trials=1)


@dataclass(frozen=True)
class Table:
    """Bounds by instance; what they don't name serves nothing."""

    prefill: Mapping[Instance, float]
    decode: Mapping[Instance, float]
    mixed: Mapping[Instance, float]
    price: Mapping[str, float]

    def prefill_per_s(self, instance: Instance, step_tokens: int, workers: int = 1) -> float:
        return workers * self.prefill.get(instance, 0.0)

    def decode_per_s(self, instance: Instance) -> float:
        return self.decode.get(instance, 0.0)

    def mixed_per_s(self, instance: Instance, step_tokens: int, *, prefill_first: bool) -> float:
        return self.mixed.get(instance, 0.0) * (0.8 if prefill_first else 1)

    def price_per_hour(self, instance: Instance) -> float:
        return self.price[instance.device] * instance.devices


RATES = st.dictionaries(
    st.sampled_from(INSTANCES), st.integers(0, 40).map(lambda eighths: eighths / 8)
)
TABLES = st.builds(
    Table,
    prefill=RATES,
    decode=RATES,
    mixed=RATES,
    price=st.fixed_dictionaries({"h20": st.just(1.0), "h800": st.sampled_from([0.5, 1.75, 4.0])}),
)
SPACES = st.builds(
    Space,
    instances=st.just(INSTANCES),
    most_devices=st.integers(1, 8),
    node_devices=st.sampled_from([2, 4]),
    low_affinity=st.booleans(),
    step_tokens=st.just((512, 2048)),
    ratios=st.integers(1, 3),
    cell_devices=st.integers(1, 8),
)


def run(search: PlacementSearch, truth: Mapping[Candidate, float]) -> list[Candidate]:
    """Trials in their order; each is told what it truly serves."""
    tried: list[Candidate] = []
    while trials := search.ask():
        for trial in trials:
            tried.append(trial.promise.candidate)
            served = truth[trial.promise.candidate]
            beaten = trial.beat_per_s is not None and served < trial.beat_per_s
            search.tell(trial, None if beaten else served)
    return tried


def truth_below_bounds(
    space: Space, bounds: Table, objective: Objective, shares: st.DataObject
) -> dict[Candidate, float]:
    return {
        one.candidate: one.bound_per_s * shares.draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
        for one in promises(space, bounds, objective)
    }


@settings(deadline=None, max_examples=150)
@given(
    SPACES,
    TABLES,
    st.sampled_from(Objective),
    st.sampled_from([None, 0.5, 3.0, 20.0]),
    st.integers(1, 4),
    st.data(),
)
def test_pruning_and_racing_never_lose_the_best_where_bounds_are_true(
    space: Space,
    bounds: Table,
    objective: Objective,
    rate_per_s: float | None,
    round_trials: int,
    data: st.DataObject,
) -> None:
    truth = truth_below_bounds(space, bounds, objective, data)
    effort = SearchEffort(slack=0.0, most_trials=10**6, seeds=1, round_trials=round_trials)
    search = PlacementSearch(
        space, bounds, objective=objective, rate_per_s=rate_per_s, effort=effort
    )
    tried = run(search, truth)
    exhaustive = PlacementSearch(
        space,
        bounds,
        objective=objective,
        rate_per_s=rate_per_s,
        effort=SearchEffort(slack=1e9, tie=1.0, most_trials=10**6, seeds=1),
    )
    run(exhaustive, truth)
    assert len(set(tried)) + len(search.pruned) + len(search.untried) == len(truth)
    assert not search.untried
    if truth:
        best, found = exhaustive.ranking()[0], search.ranking()[0]
        assert merit(exhaustive, best, rate_per_s) == merit(search, found, rate_per_s)


def merit(
    search: PlacementSearch, judged: Judged, rate_per_s: float | None
) -> tuple[float | None, float]:
    cost = search.cost(judged.promise, judged.per_s) if rate_per_s else None
    return cost, search.worth(judged)


def test_bounds_that_are_too_low_lose_the_best() -> None:
    """A negative control: the law above is not true of any search."""
    small, large = INSTANCES[0], INSTANCES[2]
    bounds = Table(PLENTY, {}, {small: 2.0, large: 1.0}, {"h20": 1.0, "h800": 1.0})
    space = Space(instances=INSTANCES, most_devices=1, step_tokens=(512,))
    search = PlacementSearch(space, bounds, effort=EXACT)
    truth = {
        one.candidate: 5.0 if one.candidate.pools[0][0] == large else 2.0 for one in search.promises
    }
    assert len(set(run(search, truth))) < len(truth) or search.pruned
    slack = SearchEffort(slack=1.5, most_trials=10**6, seeds=1)
    wide = PlacementSearch(space, bounds, effort=slack)
    run(wide, truth)
    assert wide.ranking()[0].promise.candidate.pools[0][0] == large


@settings(deadline=None, max_examples=50)
@given(SPACES, TABLES, st.data())
def test_the_order_of_instances_and_of_answers_changes_nothing(
    space: Space, bounds: Table, data: st.DataObject
) -> None:
    truth = truth_below_bounds(space, bounds, Objective.DEVICES, data)
    turned = Space(
        instances=tuple(reversed(space.instances)),
        most_devices=space.most_devices,
        node_devices=space.node_devices,
        low_affinity=space.low_affinity,
        step_tokens=space.step_tokens,
        ratios=space.ratios,
        cell_devices=space.cell_devices,
    )
    effort = SearchEffort(seeds=2, round_trials=3, most_trials=7)
    one, other = (PlacementSearch(which, bounds, effort=effort) for which in (space, turned))
    while trials := one.ask():
        assert trials == other.ask()
        for trial in trials:
            one.tell(trial, truth[trial.promise.candidate] + trial.seed)
        for trial in reversed(trials):
            other.tell(trial, truth[trial.promise.candidate] + trial.seed)
    assert not other.ask()
    assert one.ranking() == other.ranking()


@settings(deadline=None, max_examples=60)
@given(SPACES, TABLES, st.sampled_from(Objective))
def test_candidates_fit_and_are_told_apart(
    space: Space, bounds: Table, objective: Objective
) -> None:
    found = list(promises(space, bounds, objective))
    assert len({one.candidate for one in found}) == len(found)
    assert len({one.candidate.text for one in found}) == len(found)
    for one in found:
        assert one.candidate.devices <= space.most_devices
        assert one.bound_per_s > 0
        if space.low_affinity and isinstance(one.candidate, Split):
            split = one.candidate
            assert split.prefill.device == split.decode.device
            assert split.prefill.pipeline == split.decode.pipeline
            stage = (
                split.prefill.tensor * split.prefill_workers
                + split.decode.tensor * split.decode_workers
            )
            assert stage <= space.node_devices


def test_every_kind_has_its_chance_before_the_rest() -> None:
    bounds = Table(
        prefill=dict.fromkeys(INSTANCES, 1.0),
        decode={INSTANCES[0]: 1.0},
        mixed=dict.fromkeys(INSTANCES, 4.0),
        price={"h20": 1.0, "h800": 1.0},
    )
    search = PlacementSearch(Space(instances=INSTANCES), bounds, effort=EXACT)
    kinds = [one.candidate.kind for one in search.promises]
    tried = run(search, {one.candidate: 0.0 for one in search.promises})
    first = [candidate.kind for candidate in tried[: len(set(kinds))]]
    assert sorted(first) == sorted(set(kinds))


def test_finalists_get_all_seeds_and_others_a_glance() -> None:
    bounds = Table(PLENTY, {}, dict.fromkeys(INSTANCES, 4.0), {"h20": 1.0, "h800": 2.0})
    effort = SearchEffort(finalists=2, seeds=3, slack=9.0)
    search = PlacementSearch(Space(instances=INSTANCES), bounds, effort=effort)
    while trials := search.ask():
        for number, trial in enumerate(trials):
            search.tell(trial, 3.0 + trial.seed - number / 100)
    looks = [one.look for one in search.ranking()]
    assert looks == [Look.FULL] * 2 + [Look.GLANCE] * (len(looks) - 2)
    seeds = [len(one.rates_per_s) for one in search.ranking()]
    assert seeds == [3, 3] + [1] * (len(seeds) - 2)
    best = search.ranking()[0]
    assert best.least_per_s < best.per_s < best.most_per_s


def told(
    search: PlacementSearch, glances: Mapping[Candidate, float], truth: Mapping[Candidate, float]
) -> list[Trial]:
    """Glances are off, what is looked at in full is true."""
    asked: list[Trial] = []
    while trials := search.ask():
        for trial in trials:
            asked.append(trial)
            served = (glances if trial.look is Look.GLANCE else truth)[trial.promise.candidate]
            beaten = trial.beat_per_s is not None and served < trial.beat_per_s
            search.tell(trial, None if beaten else served)
    return asked


@settings(deadline=None, max_examples=150)
@given(SPACES, TABLES, st.sampled_from(Objective), st.integers(1, 4), st.data())
def test_glances_that_are_off_lose_nothing_that_slack_tie_and_margin_allow_for(
    space: Space, bounds: Table, objective: Objective, round_trials: int, data: st.DataObject
) -> None:
    off = 0.2
    truth = truth_below_bounds(space, bounds, objective, data)
    glances = {
        one: served * data.draw(st.sampled_from([1 - off, 1.0, 1 + off]))
        for one, served in truth.items()
    }
    effort = SearchEffort(
        slack=off + 1e-9,
        tie=2 * off + 1e-9,
        margin=2 * off / (1 - off) + 1e-9,
        most_trials=10**6,
        finalists=10**6,
        seeds=1,
        round_trials=round_trials,
    )
    search = PlacementSearch(space, bounds, objective=objective, effort=effort)
    told(search, glances, truth)
    if any(truth.values()):
        best = max(
            one.worth(truth[one.candidate], objective) for one in promises(space, bounds, objective)
        )
        assert search.worth(search.ranking()[0]) == pytest.approx(best)


@pytest.mark.parametrize("blind", ["slack", "tie", "margin"])
def test_without_one_of_them_an_unlucky_glance_loses_the_best(blind: str) -> None:
    """A negative control for each: the lucky one looks better by a fifth, and is not."""
    small, large = INSTANCES[0], INSTANCES[2]
    # The lucky one is looked at first. The bound of the best prunes it, if without slack.
    bound = 1.0 if blind == "slack" else 1.3
    bounds = Table(PLENTY, {}, {small: 1.3, large: bound}, {"h20": 1.0, "h800": 1.0})
    space = Space(instances=(small, large), most_devices=1, step_tokens=(512,))
    allowed = SearchEffort(slack=0.5, tie=0.5, margin=0.5, seeds=1, finalists=9, round_trials=1)
    winners: list[Instance] = []
    for effort in (allowed, replace(allowed, **{blind: 0.0})):
        search = PlacementSearch(space, bounds, effort=effort)
        lucky = {one.candidate: one.candidate.pools[0][0] == small for one in search.promises}
        told(
            search,
            glances={one: 1.1 if luck else 0.9 for one, luck in lucky.items()},
            truth={one: 0.95 if luck else 1.0 for one, luck in lucky.items()},
        )
        winners.append(search.ranking()[0].promise.candidate.pools[0][0])
    assert winners == [large, small]


@settings(deadline=None, max_examples=60)
@given(SPACES, TABLES, st.integers(1, 4), st.data())
def test_who_is_far_behind_at_a_glance_is_not_looked_at_in_full(
    space: Space, bounds: Table, finalists: int, data: st.DataObject
) -> None:
    truth = truth_below_bounds(space, bounds, Objective.DEVICES, data)
    effort = SearchEffort(seeds=2, finalists=finalists)
    search = PlacementSearch(space, bounds, effort=effort)
    asked = told(search, truth, truth)
    full = [trial for trial in asked if trial.look is Look.FULL]
    assert len(full) == 2 * len(search.finalists)
    assert len(search.finalists) <= finalists
    worths = [one.worth(truth[one.candidate], Objective.DEVICES) for one in search.finalists]
    assert all(worth * (1 + effort.margin) >= max(worths) > 0 for worth in worths)
    for trial in full:
        assert trial.near_per_s == truth[trial.promise.candidate]
        assert trial.beat_per_s is None
    glances = [trial.promise.candidate for trial in asked if trial.look is Look.GLANCE]
    assert len(set(glances)) == len(glances) <= effort.most_trials


def test_a_rate_is_served_by_whole_copies() -> None:
    """Less for each device, but no half of it is left idle."""
    small = Colocated(instance=INSTANCES[0], workers=1, step_tokens=512)
    bounds = Table(PLENTY, {}, {INSTANCES[0]: 2.0, INSTANCES[1]: 4.4}, {"h20": 1.0, "h800": 1.0})
    space = Space(instances=INSTANCES, most_devices=2, step_tokens=(512,))
    answers: list[Candidate] = []
    for rate_per_s in (None, 1.5):
        search = PlacementSearch(space, bounds, rate_per_s=rate_per_s, effort=EXACT)
        run(search, {one.candidate: one.bound_per_s for one in search.promises})
        answers.append(search.ranking()[0].promise.candidate)
    assert answers[0].devices == 2
    assert answers[1] == small


def test_answers_that_nobody_asked_for_are_refused() -> None:
    bounds = Table(PLENTY, {}, {INSTANCES[0]: 2.0}, {"h20": 1.0, "h800": 1.0})
    search = PlacementSearch(Space(instances=INSTANCES), bounds)
    trial, *_ = search.ask()
    with pytest.raises(BugError, match="untold"):
        search.ask()
    search.tell(trial, 1.0)
    with pytest.raises(BugError, match="nobody asked"):
        search.tell(trial, 1.0)
