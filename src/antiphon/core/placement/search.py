"""Which placement serves the most within its targets, for its devices or its money.

    Space ─► candidates with a bound each ─► ask: a round of glances   (first the most promising of
                    ▲                                    │              each kind, then all others)
                    └─ pruned: bound below the best      ▼
    ranking ◄──────────────────────────────── tell: its goodput, simulated; or that it is
        │                                           beaten: it fails at the rate to beat
        └─► finalists: in full, with all seeds ─► ranking with its spread

The search is ask and tell: it knows no simulator. Closed forms bound what a candidate can serve;
one whose bound is below what another has reached is never simulated. The others get a glance, a
goodput of few calls, and only those that might be the best by it are looked at in full (successive
halving, Jamieson and Talwalkar 2016, with two rungs). Whoever comes after the first has to hold the
rate at which it would nearly tie with the best: most fail, which takes one run instead of a search.
Trials come in rounds that are told as a whole, so what is asked does not depend on which process is
done first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor, inf
from statistics import median

from antiphon.errors import BugError

from .candidates import Candidate
from .space import Bounds, Objective, Promise, Space, promises


class Look(StrEnum):
    """How closely a candidate is looked at."""

    GLANCE = "glance"
    """With few calls: its goodput to a tenth or so."""
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """`slack`: how much, relatively, a bound may be too low before it prunes. `tie`: who is behind
    by less than that at a glance is not beaten. `margin`: who would be the best if it served so
    much more than at a glance may be a finalist.

    Where glances are wrong by up to a share e, nothing is lost with a slack of e, a tie of 2·e and
    a margin of 2·e / (1 − e). `most_trials`: candidates that are simulated, at most. `finalists`:
    so many of the best, at most, are looked at in full, with all `seeds`. `round_trials`: trials
    that may run side by side.
    """

    slack: float = 0.15
    tie: float = 0.1
    margin: float = 0.15
    most_trials: int = 16
    finalists: int = 3
    seeds: int = 3
    round_trials: int = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """What to simulate: a candidate under users of this seed, from 0 on.

    `beat_per_s`: at this rate it must hold, or it is beaten and nothing else matters; None: it is
    one of the first, or a finalist. `near_per_s`: its goodput at a glance; None: not known.
    """

    promise: Promise
    seed: int
    look: Look = Look.GLANCE
    beat_per_s: float | None = None
    near_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate and its goodput in requests a second: at a glance, or in full, seed by seed."""

    promise: Promise
    rates_per_s: tuple[float, ...]
    look: Look = Look.GLANCE

    @property
    def per_s(self) -> float:
        """The median."""
        return median(self.rates_per_s)

    @property
    def least_per_s(self) -> float:
        """The unluckiest seed's."""
        return min(self.rates_per_s)

    @property
    def most_per_s(self) -> float:
        """The luckiest seed's."""
        return max(self.rates_per_s)

    def copies(self, rate_per_s: float) -> int | None:
        """How many of it serve that rate; None: it serves nothing in time."""
        return ceil(rate_per_s / self.per_s) if self.per_s else None


class PlacementSearch:
    """Finds the candidate of most worth. `rate_per_s`: to be served by whole copies of it;
    None: worth alone counts."""

    def __init__(
        self,
        space: Space,
        bounds: Bounds,
        *,
        objective: Objective = Objective.DEVICES,
        rate_per_s: float | None = None,
        effort: SearchEffort | None = None,
    ) -> None:
        self.objective = objective
        self.effort = effort or SearchEffort()
        self._rate_per_s = rate_per_s
        found = sorted(promises(space, bounds, objective), key=self._order)
        self.promises: Sequence[Promise] = found
        """All candidates, the most promising first."""
        self._left = _leaders_first(found)
        self._glances: dict[Candidate, float] = {}
        self._full: dict[Candidate, dict[int, float]] = {}
        """By seed."""
        self.beaten: list[Trial] = []
        """Trials of candidates that fail at the rate to beat, in order."""
        self._by_candidate = {promise.candidate: promise for promise in found}
        self._asked: list[Trial] = []
        self._finalists: Sequence[Promise] | None = None

    # ── ask and tell ─────────────────────────────────────────────────────────────────────────

    def ask(self) -> Sequence[Trial]:
        """The next round; empty: nothing that is left could change the answer. Mutates.

        Raises `BugError` while trials of the last round have not been told.
        """
        if self._asked:
            raise BugError(f"{len(self._asked)} trials of a placement search are still untold")
        self._asked = self._glances_due() or self._finals_due()
        return tuple(self._asked)

    def tell(self, trial: Trial, per_s: float | None) -> None:
        """What a trial's goodput is; None: it is beaten. Mutates.

        Raises `BugError` unless it was asked for.
        """
        if trial not in self._asked:
            raise BugError(f"nobody asked for {trial.promise.candidate.text}, seed {trial.seed}")
        self._asked.remove(trial)
        candidate = trial.promise.candidate
        if per_s is None:
            self.beaten.append(trial)
        elif trial.look is Look.GLANCE:
            self._glances[candidate] = per_s
        else:
            self._full.setdefault(candidate, {})[trial.seed] = per_s

    @property
    def finalists(self) -> Sequence[Promise]:
        """Those that are looked at in full; empty before all glances are told."""
        return self._finalists or ()

    @property
    def pruned(self) -> Sequence[Promise]:
        """Candidates whose bound is below what the best has reached."""
        best = self._best()
        return [promise for promise in self._left if self._hopeless(promise, best)]

    @property
    def untried(self) -> Sequence[Promise]:
        """Candidates that could be better, for all that is known, but were not simulated."""
        best = self._best()
        return [promise for promise in self._left if not self._hopeless(promise, best)]

    # ── what is known ────────────────────────────────────────────────────────────────────────

    def worth(self, judged: Judged) -> float:
        """By the objective."""
        return judged.promise.worth(judged.per_s, self.objective)

    def ranking(self) -> Sequence[Judged]:
        """All but the beaten, best first: by the cost of `rate_per_s`, then worth, then devices.

        What was looked at in full, and serves anything, is before what had a glance only.
        """
        return sorted(map(self._judged, self._glances), key=self._rank)

    def cost(self, promise: Promise, per_s: float) -> float | None:
        """Devices, or money an hour, of the copies that serve `rate_per_s` if each serves `per_s`.

        Without a rate: of one. None: it serves nothing.
        """
        if not per_s:
            return None
        copies = 1 if self._rate_per_s is None else ceil(self._rate_per_s / per_s)
        match self.objective:
            case Objective.DEVICES:
                return copies * promise.candidate.devices
            case Objective.MONEY:
                return copies * promise.price_per_hour

    def _judged(self, candidate: Candidate) -> Judged:
        promise = self._by_candidate[candidate]
        if rates := self._full.get(candidate):
            return Judged(promise, tuple(rates[seed] for seed in sorted(rates)), Look.FULL)
        return Judged(promise, (self._glances[candidate],))

    def _rank(self, judged: Judged) -> tuple[bool, float, float, int, str]:
        candidate = judged.promise.candidate
        return (
            not (judged.per_s and judged.look is Look.FULL),
            *self._merit(judged.promise, judged.per_s),
            candidate.devices,
            candidate.text,
        )

    def _merit(self, promise: Promise, per_s: float) -> tuple[float, float]:
        """The less the better: cost of the rate that is wanted, if one is, then worth, negated."""
        cost = 0.0 if self._rate_per_s is None and per_s else self.cost(promise, per_s)
        return inf if cost is None else cost, -promise.worth(per_s, self.objective)

    # ── rounds ───────────────────────────────────────────────────────────────────────────────

    def _glances_due(self) -> list[Trial]:
        if self._finalists is not None:
            return []
        tried = len(self._glances) + len(self.beaten)
        room = min(self.effort.round_trials, self.effort.most_trials - tried)
        chosen = self.untried[: max(0, room)]
        self._left = [promise for promise in self._left if promise not in chosen]
        best = self._best()
        return [Trial(one, 0, beat_per_s=self._to_beat(one, best)) for one in chosen]

    def _finals_due(self) -> list[Trial]:
        if self._finalists is None:
            self._finalists = self._chosen_finalists()
        due = [
            Trial(promise, seed, Look.FULL, near_per_s=self._glances[promise.candidate])
            for seed in range(self.effort.seeds)
            for promise in self._finalists
            if seed not in self._full.get(promise.candidate, ())
        ]
        return due[: self.effort.round_trials]

    def _chosen_finalists(self) -> Sequence[Promise]:
        """The best at a glance, and who might be better than it."""
        best, more = self._best(), 1 + self.effort.margin
        near = [
            one.promise
            for one in self.ranking()
            if one.per_s and self._merit(one.promise, one.per_s * more) <= best
        ]
        return near[: self.effort.finalists]

    def _best(self) -> tuple[float, float]:
        """The merit of the best so far."""
        judged = map(self._judged, self._glances)
        return min((self._merit(one.promise, one.per_s) for one in judged), default=(inf, 0.0))

    def _to_beat(self, promise: Promise, best: tuple[float, float]) -> float | None:
        """The rate at which it would nearly tie with the best; None: there is none yet."""
        cost, worth = best
        near = 1 - self.effort.tie
        if self._rate_per_s is None:
            return -worth * near / promise.worth(1.0, self.objective) or None
        one = self.cost(promise, self._rate_per_s)
        if cost == inf or one is None:
            return None
        return near * self._rate_per_s / max(1, floor(cost / one))

    def _hopeless(self, promise: Promise, best: tuple[float, float]) -> bool:
        """Even at its bound it would rank behind."""
        return self._merit(promise, promise.bound_per_s * (1 + self.effort.slack)) > best

    def _order(self, promise: Promise) -> tuple[float, int, str]:
        candidate = promise.candidate
        worth = promise.worth(promise.bound_per_s, self.objective)
        return -worth, candidate.devices, candidate.text


def _leaders_first(found: Sequence[Promise]) -> list[Promise]:
    """The most promising of each kind before all others, so that every kind has its chance."""
    leaders: Mapping[str, Promise] = {one.candidate.kind: one for one in reversed(found)}
    chosen = list(leaders.values())
    first = [one for one in found if one in chosen]
    return first + [one for one in found if one not in chosen]
