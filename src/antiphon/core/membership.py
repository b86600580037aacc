"""Who is there: what a gateway thinks of each worker, from what it hears and does not hear.

    joined ──► JOINED ◄──── heard ────┐            drain: DRAINING takes JOINED's place
                 │ silent for a few heartbeats      until the life ends or it is taken back
                 ▼                    │
              SUSPECT ────────────────┘
                 │ silent for lost_after_s, or its stream closed, or its successor joined
                 ▼
               LOST      forgotten; this life is never taken in again

A worker's life has an id of its own, its incarnation: whoever was given up, and was only stopped,
must join under a new one, so that nothing it still says can be taken for its successor's word.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.errors import BugError
from antiphon.types import (
    Health,
    HealthChanged,
    Incarnation,
    JoinRefusal,
    JoinRefused,
    Seconds,
    WorkerId,
)

MEMBERSHIP = "membership"
"""The name of `Membership` in a record of decisions."""
MEMBERSHIP_METHODS = ("joined", "heard", "drain", "left", "due")
"""The methods of `Membership` whose calls make up its record."""

_MISSED = 3
"""Heartbeats that may be missed before a worker is suspect."""
_ENDED_LIVES = 4096
"""Ended lives that are remembered. Ids are random, and a gateway closes the stream of a life that
it gives up: only one that outlives so many others, and dials again, would be taken for new."""


@dataclass(slots=True)
class _Life:
    incarnation: Incarnation
    heard_at: Seconds
    told: Health = Health.JOINED
    """What was said of it last."""
    draining: bool = False
    recovered: bool = False
    """Heard again since it was told to be suspect."""


class Membership:
    """The workers of one gateway. Every change of health is told exactly once, to whoever calls.

    Raises `BugError` unless 0 < heartbeat_s < lost_after_s.
    """

    def __init__(self, *, heartbeat_s: Seconds, lost_after_s: Seconds) -> None:
        if not 0 < heartbeat_s < lost_after_s:
            raise BugError(f"lost_after_s {lost_after_s} is not above heartbeat_s {heartbeat_s}")
        self._heartbeat_s = heartbeat_s
        self._suspect_after_s = min(_MISSED * heartbeat_s, (heartbeat_s + lost_after_s) / 2)
        self._lost_after_s = lost_after_s
        self._lives: dict[WorkerId, _Life] = {}
        self._ended: OrderedDict[Incarnation, None] = OrderedDict()
        self._not_before: Seconds | None = None
        """Nothing changes before then. Signs of life move it no later: `due` does, for all."""

    def health(self, worker: WorkerId) -> Health:
        """What was last said of the worker; LOST if it is not there."""
        life = self._lives.get(worker)
        return Health.LOST if life is None else life.told

    def workers(self) -> Sequence[WorkerId]:
        """All that are there, in the order of their ids."""
        return sorted(self._lives)

    def joined(
        self, worker: WorkerId, incarnation: Incarnation, now: Seconds
    ) -> Sequence[HealthChanged] | JoinRefused:
        """A worker wants to begin a life. Mutates unless it is refused.

        The answer holds the loss of the life before, if that had not been noticed: it must be
        passed on before the `WorkerJoined` of the new one. A life that is over can't join.
        """
        if incarnation in self._ended:
            return JoinRefused(
                reason=JoinRefusal.OVER,
                message=f"worker {worker}: this life was given up as lost; "
                f"abort all requests and join under a new incarnation",
            )
        before = self._lives.get(worker)
        if before is not None and before.incarnation == incarnation:
            message = f"worker {worker} has joined already"
            return JoinRefused(reason=JoinRefusal.INVALID, message=message)
        if any(life.incarnation == incarnation for life in self._lives.values()):
            message = f"worker {worker}: another worker lives under this incarnation"
            return JoinRefused(reason=JoinRefusal.INVALID, message=message)
        lost = () if before is None else (self._end(worker),)
        self._lives[worker] = life = _Life(incarnation, now)
        self._foresee(self._next_change(life))
        return lost

    def heard(self, worker: WorkerId, incarnation: Incarnation, now: Seconds) -> bool:
        """The worker gave a sign of life. Mutates. False: not its current life, so don't listen.

        A suspect that is heard is told healthy by the next `due`, which is then due at once.
        """
        life = self._current(worker, incarnation)
        if life is None:
            return False
        life.heard_at = max(life.heard_at, now)
        life.recovered = life.told is Health.SUSPECT
        if life.recovered:
            self._foresee(life.heard_at)
        return True

    def drain(self, worker: WorkerId, on: bool) -> Sequence[HealthChanged]:
        """It gets nothing new from now on, or (`on=False`) again. Mutates; unknown: nothing.

        The flag outlasts silence and ends with the life.
        """
        life = self._lives.get(worker)
        if life is None:
            return ()
        life.draining = on
        return () if life.told is Health.SUSPECT else self._tell(worker, life, _well(life))

    def left(
        self, worker: WorkerId, incarnation: Incarnation, now: Seconds
    ) -> Sequence[HealthChanged]:
        """The stream of this life closed: it is lost at once. Mutates; not its life: nothing."""
        return () if self._current(worker, incarnation) is None else (self._end(worker),)

    def due(self, now: Seconds) -> Sequence[HealthChanged]:
        """What time has changed, in the order of ids. Mutates.

        A call that comes late by more than a heartbeat means that this process stood still: what
        the workers said meanwhile lies unread, so its own absence is not counted as their silence.
        """
        if self._not_before is None or now < self._not_before:
            return ()
        next_at = self._first_change()
        if next_at is not None and (overslept_s := now - next_at) > self._heartbeat_s:
            for life in self._lives.values():
                life.heard_at = min(now, life.heard_at + overslept_s)
        changes: list[HealthChanged] = []
        for worker in self.workers():
            life = self._lives[worker]
            if now >= life.heard_at + self._lost_after_s:
                changes.append(self._end(worker))
            elif now >= life.heard_at + self._suspect_after_s:
                changes += self._tell(worker, life, Health.SUSPECT)
            else:
                changes += self._tell(worker, life, _well(life))
        self._not_before = self._first_change()
        return tuple(changes)

    def next_deadline(self) -> Seconds | None:
        """When `due` must be called next; None: nobody is there. Does not mutate.

        Never too late, and too early if somebody was heard since: with a thousand workers this is
        asked at each of their messages.
        """
        return self._not_before

    def _foresee(self, change: Seconds) -> None:
        if self._not_before is None or change < self._not_before:
            self._not_before = change

    def _first_change(self) -> Seconds | None:
        return min((self._next_change(life) for life in self._lives.values()), default=None)

    def _next_change(self, life: _Life) -> Seconds:
        if life.told is not Health.SUSPECT:
            return life.heard_at + self._suspect_after_s
        return life.heard_at if life.recovered else life.heard_at + self._lost_after_s

    def _current(self, worker: WorkerId, incarnation: Incarnation) -> _Life | None:
        life = self._lives.get(worker)
        return life if life is not None and life.incarnation == incarnation else None

    def _tell(self, worker: WorkerId, life: _Life, health: Health) -> Sequence[HealthChanged]:
        life.recovered = False
        if life.told is health:
            return ()
        life.told = health
        return (HealthChanged(worker, health),)

    def _end(self, worker: WorkerId) -> HealthChanged:
        self._ended[self._lives.pop(worker).incarnation] = None
        if len(self._ended) > _ENDED_LIVES:
            self._ended.popitem(last=False)
        return HealthChanged(worker, Health.LOST)


def _well(life: _Life) -> Health:
    return Health.DRAINING if life.draining else Health.JOINED
