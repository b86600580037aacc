"""Searches over the simulator: the same answer however many processes there are."""

import pytest
from placing_kit import case

from antiphon.core.goodput import Attainment, Goodput
from antiphon.core.placement import Instance, PlacementSearch, SearchEffort, Space, Trial
from antiphon.sim.placing import PhaseBounds, SearchRun


class TooHigh(PhaseBounds):
    """True, and of little use: they prune nobody."""

    def mixed_per_s(self, instance: Instance, step_tokens: int, *, prefill_first: bool) -> float:
        bound = super().mixed_per_s(instance, step_tokens, prefill_first=prefill_first)
        return 2 * bound

    def prefill_per_s(self, instance: Instance, step_tokens: int, workers: int = 1) -> float:
        return 2 * super().prefill_per_s(instance, step_tokens, workers)


def search_run(bounds_of: type[PhaseBounds] = PhaseBounds, **effort: int) -> SearchRun:
    of = case(calls=30)
    space = Space(
        instances=tuple(kind.instance for kind in of.kinds),
        most_devices=2,
        step_tokens=(512,),
        ratios=1,
    )
    bounds = bounds_of(of.kinds, of.shape, of.slo, max_sequences=256)
    return SearchRun(PlacementSearch(space, bounds, effort=SearchEffort(seeds=1, **effort)), of)


def test_the_answer_does_not_depend_on_processes() -> None:
    alone, together = search_run(most_trials=2), search_run(most_trials=2)
    alone.run(processes=1)
    together.run(processes=2)
    assert alone.search.ranking() == together.search.ranking()
    assert alone.found == together.found
    assert alone.failures == together.failures
    assert alone.search.ranking()


def test_who_is_beaten_takes_one_run_and_says_why() -> None:
    run = search_run(TooHigh, most_trials=4, round_trials=1)
    heard: list[tuple[Trial, Goodput | Attainment]] = []
    run.run(on_progress=lambda trial, answer: heard.append((trial, answer)))
    beaten = [trial for trial, answer in heard if isinstance(answer, Attainment)]
    assert beaten == run.search.beaten
    assert beaten
    for trial in beaten:
        assert trial.beat_per_s is not None
        assert run.failures[trial.promise.candidate].both().value < 0.9


def test_after_an_interruption_what_is_known_is_there() -> None:
    run = search_run(TooHigh, most_trials=4, round_trials=2)

    def interrupt(trial: Trial, answer: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(on_progress=interrupt)
    assert len(run.search.ranking()) == 1
    assert run.search.untried
