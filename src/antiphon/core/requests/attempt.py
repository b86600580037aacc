"""One try at running a request, and where it is.

Waiting ──► Serving                        one worker does all of it
   │  ▲
   ▼  │ refused, lost, moved: the next attempt
Prefilling ── Offer ──► Waiting ──► Granting ──► Serving (adopted) ── Pulled ──► Serving
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from antiphon.types import AttemptRecord, Request, Seconds, WorkerId


@dataclass(frozen=True, slots=True)
class Waiting:
    """No worker has it: it waits for one, with an offer or without."""


@dataclass(frozen=True, slots=True)
class Prefilling:
    """This worker was given the prompt, and will offer the KV."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Granting:
    """The KV's owner was told that `taker` may have it. No worker has the request."""

    taker: WorkerId


@dataclass(frozen=True, slots=True)
class Serving:
    """This worker was given the rest of the request; `adopted`: with an offer."""

    worker: WorkerId
    adopted: bool


Milestone: TypeAlias = Literal["offered", "adopted", "pulled", "fetched", "first_token"]
"""What an attempt comes to on its way."""

Place: TypeAlias = Waiting | Prefilling | Granting | Serving

WAITING = Waiting()


@dataclass(slots=True, eq=False)
class Attempt:
    """Mutable. `request` is what this attempt's workers are given."""

    request: Request
    began_at: Seconds
    routed_at: Seconds | None = None
    """When it got its workers; None: it has none yet."""
    place: Place = WAITING
    known: bool = False
    """The worker has admitted it, or has reported about it, which says as much."""
    started: bool = False
    pulled: bool = False
    fetched: bool = False
    """Its fetch from the store is over."""
    first_token: bool = False
    """It has given a token, so the prompt is computed, and the router knows."""
    _route: str = ""
    _reached: dict[Milestone, Seconds] = field(default_factory=dict)
    """When it came to each for the first time."""
    _computed_tokens: int = 0

    @property
    def record(self) -> AttemptRecord | None:
        """As it stands now; None: it has no workers yet. Made when it is asked for, at the end."""
        if self.routed_at is None:
            return None
        at = self._reached.get
        return AttemptRecord(
            began_at=self.began_at,
            routed_at=self.routed_at,
            route=self._route,
            fetched_at=at("fetched"),
            offered_at=at("offered"),
            adopted_at=at("adopted"),
            pulled_at=at("pulled"),
            first_token_at=at("first_token"),
            computed_tokens=self._computed_tokens,
        )

    @property
    def worker(self) -> WorkerId | None:
        """Who has the request, and must be told if it is to stop."""
        match self.place:
            case Prefilling(worker) | Serving(worker):
                return worker
            case Waiting() | Granting():
                return None

    @property
    def begun(self) -> bool:
        """Its worker has worked for it, or may have: what waits in a queue alone kills nobody.

        Nobody says when a pull begins, so whoever has an offer counts from the start.
        """
        pulls = isinstance(self.place, Serving) and self.place.adopted
        return pulls or self.started or self.fetched

    def routed(self, route: str, now: Seconds) -> None:
        """Mutates: the attempt has its workers; again, if others were planned before."""
        if self.routed_at is None:
            self.routed_at = now
        self._route = route

    def reached(self, milestone: Milestone, now: Seconds) -> None:
        """Mutates: it has come so far; the first time counts."""
        if self.routed_at is not None:
            self._reached.setdefault(milestone, now)

    def computes(self, cached_tokens: int) -> None:
        """Mutates: its first worker begins, and has these of its tokens. Later ones had the KV."""
        if self.routed_at is not None and not self._computed_tokens:
            had = len(self.request.prompt) + sum(map(len, self.request.resumed))
            self._computed_tokens = max(had - cached_tokens, 0)

    def give(self, place: Place) -> None:
        """Mutates: it is somewhere else now, where nothing has been said about it yet."""
        self.place = place
        self.known = False
        self.started = False
        self.pulled = False
        self.fetched = False
