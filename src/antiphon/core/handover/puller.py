"""The taker's side of a hand-over: take the lease, copy the pages, say that they are here.

    begin ──Take──▶ taking ──taken──▶ copying ──copied──▶ Acknowledge, PullEnded(good pages)
                      │  ▲              │ │  Renew, every third of the time to live
                      │  └ no answer    │ └── ran out ──▶ StopCopy ──copied──▶ PullEnded(no page)
                      └─ refused, owner lost, cancelled, too late ──▶ PullEnded(no page)

The owner counts a lease from receiving, the taker from sending what the owner has answered, less a
margin: so the taker always thinks that it is over before the owner does, without a common clock. A
copy that ended later than that is worth nothing, whatever it read. Each ends in one `PullEnded`,
which is what `Scheduler.pulled` is to be told, and not before its copy has stopped writing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from antiphon.errors import BugError
from antiphon.types import (
    HostPort,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Pull,
    RequestId,
    Seconds,
    WorkerId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One life of a worker that offers: who is asked for a lease."""

    worker: WorkerId
    incarnation: Incarnation
    at: HostPort | None = None
    """Where it is asked from other hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Ask the owner for the lease; the answer goes to `taken`."""

    request: RequestId
    attempt: int
    owner: Owner
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy and verify the pages; when nothing is written any more, report to `copied`."""

    pull: Pull


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCopy:
    """Nobody wants the pages: stop early if that is easy. `copied` is waited for all the same."""

    request: RequestId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Tell the owner that it may forget the lease. Nobody waits for the answer: leases expire."""

    request: RequestId
    attempt: int
    owner: Owner
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class RenewTaken:
    """Tell the owner that these leases are still needed; its answers go to `renewed`."""

    owner: Owner
    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullEnded:
    """Tell the scheduler: these pages are good, nothing is written any more."""

    request: RequestId
    attempt: int
    good: tuple[bool, ...]
    problem: str
    """Why pages are missing; empty if none is."""
    seconds: Seconds


PullCommand: TypeAlias = Take | Copy | StopCopy | Acknowledge | RenewTaken | PullEnded
"""What `Puller` orders its driver to do."""


class _State(Enum):
    TAKING = auto()
    COPYING = auto()
    STOPPING = auto()
    """Copying in vain: the pages are given back when the copy has ended."""


@dataclass(slots=True, eq=False)
class _Pulling:
    pull: Pull
    owner: Owner
    began_at: Seconds
    answer_by: Seconds
    """When a take that is not answered is given up."""
    safe_until: Seconds
    """By the taker's own count the lease lives until then."""
    renew_at: Seconds
    asked_at: Seconds | None
    """When the take or renewal that is not answered yet was sent."""
    state: _State = _State.TAKING
    problem: str = ""
    cancelled: bool = False
    """The gateway decides about the lease: it may be for another attempt already."""


class Puller:
    """Carries out a worker's pulls by commands. One for all owners: each fails by itself.

    `answer_s`: how long an owner may take to answer. `margin_s`: what the taker's count of a lease
    is shorter by than the owner's. Facts about pulls that have ended are ignored.
    """

    def __init__(self, *, answer_s: Seconds, margin_s: Seconds) -> None:
        self._answer_s = answer_s
        self._margin_s = margin_s
        self._pulls: dict[tuple[RequestId, int], _Pulling] = {}

    def __len__(self) -> int:
        """Pulls that have not ended."""
        return len(self._pulls)

    def begin(self, pull: Pull, now: Seconds) -> Sequence[PullCommand]:
        """The scheduler has room for this pull. One that needs no page is over at once."""
        key = (pull.request, pull.attempt)
        if key in self._pulls:
            raise BugError(f"{pull.request} is pulled twice in attempt {pull.attempt}")
        offer = pull.offer
        owner = Owner(worker=offer.owner, incarnation=offer.incarnation, at=offer.at)
        one = _Pulling(
            pull=pull,
            owner=owner,
            began_at=now,
            answer_by=now + self._answer_s,
            safe_until=now + offer.ttl_s - self._margin_s,
            renew_at=now + offer.ttl_s / 3,
            asked_at=now,
        )
        if not pull.pages:
            return _end(one, (), now)
        self._pulls[key] = one
        return [Take(request=pull.request, attempt=pull.attempt, owner=owner, lease=offer.lease)]

    def taken(
        self, request: RequestId, attempt: int, answer: LeaseHeld | LeaseRefused, now: Seconds
    ) -> Sequence[PullCommand]:
        """The owner has answered a `Take`."""
        one = self._pulls.get((request, attempt))
        if one is None or one.state is not _State.TAKING:
            return []
        if isinstance(answer, LeaseRefused):
            return self._give_up(one, _REFUSED[answer.reason], now)
        if now >= one.safe_until:
            return self._give_up(one, "the lease ran out before it was taken", now)
        one.asked_at = None
        one.state = _State.COPYING
        return [Copy(one.pull)]

    def copied(
        self, request: RequestId, attempt: int, good: tuple[bool, ...], problem: str, now: Seconds
    ) -> Sequence[PullCommand]:
        """The copy has ended, and wrote what is `good`: a flag for each page of the pull.

        Raises `BugError` if it was not asked for, or a flag is missing.
        """
        one = self._pulls.get((request, attempt))
        if one is None or one.state is _State.TAKING or len(good) != len(one.pull.pages):
            raise BugError(f"pages of {request}, attempt {attempt}, are copied unasked")
        if one.state is _State.COPYING and now >= one.safe_until:
            one.problem = _RAN_OUT
        if one.problem:
            good = (False,) * len(good)
        elif not all(good):
            one.problem = problem or "a page was not what was offered"
        del self._pulls[request, attempt]
        return _end(one, good, now)

    def renewed(
        self, answers: Iterable[LeaseHeld | LeaseRefused], now: Seconds
    ) -> Sequence[PullCommand]:
        """An owner has answered a `RenewTaken`."""
        commands: list[PullCommand] = []
        by_lease = {one.pull.offer.lease: one for one in self._pulls.values()}
        for answer in answers:
            one = by_lease.get(answer.lease)
            if one is None or one.state is not _State.COPYING or one.asked_at is None:
                continue
            asked_at, one.asked_at = one.asked_at, None
            if isinstance(answer, LeaseRefused):
                commands += self._give_up(one, _REFUSED[answer.reason], now)
                continue
            one.safe_until = asked_at + one.pull.offer.ttl_s - self._margin_s
            one.renew_at = asked_at + one.pull.offer.ttl_s / 3
        return commands

    def lost(self, owner: Incarnation, now: Seconds) -> Sequence[PullCommand]:
        """An owner is dead, or unreachable. What is being copied may still come: see `safe_until`.

        Memory outlives the process that wrote it, and nobody writes to it any more.
        """
        commands: list[PullCommand] = []
        for one in list(self._pulls.values()):
            if one.owner.incarnation == owner and one.state is _State.TAKING:
                commands += self._give_up(one, "its owner is gone", now)
        return commands

    def cancel(self, request: RequestId, attempt: int, now: Seconds) -> Sequence[PullCommand]:
        """The request has ended here while its KV was on its way; the lease is not touched."""
        one = self._pulls.get((request, attempt))
        if one is None:
            return []
        one.cancelled = True
        return self._give_up(one, "the request has ended", now)

    def due(self, now: Seconds) -> Sequence[PullCommand]:
        """Give up what took too long, and renew, one command an owner, what is still copied."""
        commands: list[PullCommand] = []
        renewals: dict[Owner, list[LeaseId]] = {}
        for one in list(self._pulls.values()):
            if one.state is _State.TAKING and one.answer_by <= now:
                commands += self._give_up(one, f"no answer in {self._answer_s:g} s", now)
            elif one.state is _State.COPYING and one.safe_until <= now:
                commands += self._give_up(one, _RAN_OUT, now)
            elif one.state is _State.COPYING and one.renew_at <= now and one.asked_at is None:
                one.asked_at = now
                renewals.setdefault(one.owner, []).append(one.pull.offer.lease)
        commands += (RenewTaken(owner, tuple(leases)) for owner, leases in renewals.items())
        return commands

    def next_deadline(self) -> Seconds | None:
        """When `due` has something to do, if nothing else happens; None: never."""
        times = (at for one in self._pulls.values() if (at := _next(one)) is not None)
        return min(times, default=None)

    def _give_up(self, one: _Pulling, problem: str, now: Seconds) -> Sequence[PullCommand]:
        """End it now, or as soon as the copy has stopped to write."""
        pull = one.pull
        one.problem = one.problem or problem
        match one.state:
            case _State.TAKING:
                del self._pulls[pull.request, pull.attempt]
                return _end(one, (False,) * len(pull.pages), now)
            case _State.COPYING:
                one.state = _State.STOPPING
                return [StopCopy(request=pull.request, attempt=pull.attempt)]
            case _State.STOPPING:
                return []


_RAN_OUT = "the lease ran out while its pages were copied"
_REFUSED = {
    LeaseRefusal.GONE: "the lease was gone",
    LeaseRefusal.FOREIGN: "the lease was granted to another",
}


def _next(one: _Pulling) -> Seconds | None:
    match one.state:
        case _State.TAKING:
            return one.answer_by
        case _State.COPYING if one.asked_at is None:
            return min(one.renew_at, one.safe_until)
        case _State.COPYING:
            return one.safe_until
        case _State.STOPPING:
            return None


def _end(one: _Pulling, good: tuple[bool, ...], now: Seconds) -> list[PullCommand]:
    """Nobody reads the lease's pages any more, and the scheduler may go on."""
    pull = one.pull
    ended = PullEnded(
        request=pull.request,
        attempt=pull.attempt,
        good=good,
        problem=one.problem,
        seconds=now - one.began_at,
    )
    if one.cancelled:
        return [ended]
    acknowledge = Acknowledge(
        request=pull.request, attempt=pull.attempt, owner=one.owner, lease=pull.offer.lease
    )
    return [acknowledge, ended]
