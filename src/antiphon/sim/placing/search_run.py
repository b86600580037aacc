"""Runs a placement search: its trials in the simulator, side by side in processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from antiphon.core.goodput import GOAL, Attainment, Goodput
from antiphon.core.placement import Candidate, PlacementSearch, Trial
from antiphon.host.process_pool import process_pool

from .placement_case import PlacementCase

Progress = Callable[[Trial, "Goodput | Attainment"], None]
_Judge = Callable[[Sequence[Trial]], "Iterator[tuple[Trial, Goodput | Attainment]]"]
_START = 0.75
"""Of the bound: where goodput is searched first."""


@dataclass(slots=True)
class SearchRun:
    """A search and what its trials found. After an interruption it holds what is known by then."""

    search: PlacementSearch
    case: PlacementCase
    found: dict[Candidate, list[Goodput]] = field(default_factory=dict)
    """By candidate: at a glance, then in full, in the order of seeds."""
    failures: dict[Candidate, Attainment] = field(default_factory=dict)
    """Of each that is beaten: what it attains at the rate to beat."""

    def run(
        self, *, processes: int = 1, on_progress: Progress = lambda _trial, _found: None
    ) -> None:
        """Until the search asks for nothing more. Results do not depend on `processes`. Mutates."""
        with _judging(self.case, processes) as judge:
            while trials := self.search.ask():
                for trial, answer in judge(trials):
                    self._take(trial, answer)
                    on_progress(trial, answer)

    def _take(self, trial: Trial, answer: Goodput | Attainment) -> None:
        candidate = trial.promise.candidate
        match answer:
            case Goodput():
                self.search.tell(trial, answer.rate_per_s)
                self.found.setdefault(candidate, []).append(answer)
            case Attainment():
                self.search.tell(trial, None)
                self.failures[candidate] = answer


@contextmanager
def _judging(case: PlacementCase, processes: int) -> Iterator[_Judge]:
    """Yields what judges a round, in its order. Leaving in the midst of one ends the processes."""
    if processes == 1:
        yield lambda trials: ((trial, _judged(case, trial)) for trial in trials)
        return
    with process_pool(processes) as pool:
        yield lambda trials: zip(
            trials, pool.map(_judged, [case] * len(trials), trials), strict=True
        )


def _judged(case: PlacementCase, trial: Trial) -> Goodput | Attainment:
    """Its goodput; or, if it fails at the rate to beat, what it attains there."""
    candidate, seed, case = trial.promise.candidate, trial.seed, case.looking(trial.look)
    if trial.near_per_s:
        return case.goodput_near(candidate, seed, trial.near_per_s)
    beat_per_s = trial.beat_per_s
    if beat_per_s is None:
        return case.goodput(candidate, seed, _START * trial.promise.bound_per_s)
    attained = case.holds(candidate, seed, beat_per_s)
    if attained.both().value < GOAL:
        return attained
    return case.goodput(candidate, seed, beat_per_s, (beat_per_s, attained))
