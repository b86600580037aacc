"""Slices of all pulls from one peer: which is asked for next, which came, when a pull is over.

    begin ──► waiting ──take──► flying ──came──► here ──(all parts of a group)──► proven ──► over
                 ▲                 │
                 └──── gave_back ──┘        expire, cancel: what waits is dropped, what flies is
                                            given up by its stream; then the pull is over

A pull is over only when none of its slices flies and none is being proven: from then on nothing is
written to its targets.
"""

from collections import deque
from dataclasses import dataclass, field

from antiphon.errors import BugError
from antiphon.types import Seconds

from .cut import Cut
from .paths import Paths

TRIES = 4
"""So often one slice may take its connection with it; then it is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One part of one group of rows of one pull."""

    pull: int
    group: int
    part: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became whole with a slice. `group`: all its parts are here and can be proven now."""

    group: bool
    parts: int
    """So many leading parts are here of all rows, the last one not before all is proven."""


@dataclass(slots=True)
class _Pull:
    cut: Cut
    deadline: Seconds
    waiting: deque[Slice]
    missing: list[int]
    """Parts that are not here, by group."""
    left_of: list[int]
    """Groups that are not here, by part."""
    flying: int = 0
    proving: int = 0
    unproven: int = 0
    wanted: bool = True
    tries: dict[tuple[int, int], int] = field(default_factory=dict)
    """By group and part: how often a slice was blamed."""
    failed_on: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """By group and part: the paths that lost it."""

    @property
    def parts_here(self) -> int:
        for part, left in enumerate(self.left_of):
            if left:
                return part
        parts = len(self.left_of)
        return parts - 1 if self.unproven else parts


class SliceBook:
    """All pulls over `paths`. Mutable; every method but the questions mutates."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._pulls: dict[int, _Pull] = {}
        self._begun = 0
        self._left = 0

    def __len__(self) -> int:
        """Pulls that were not forgotten."""
        return len(self._pulls)

    @property
    def left_bytes(self) -> int:
        """What waits to be asked for."""
        return self._left

    def begin(self, cut: Cut, deadline: Seconds) -> int:
        """A new pull; returns its number."""
        number = self._begun
        self._begun += 1
        waiting = deque(
            Slice(pull=number, group=group, part=part, bytes=cut.bytes_of(group, part))
            for part in range(len(cut.parts))
            for group in range(cut.groups)
        )
        self._pulls[number] = _Pull(
            cut,
            deadline,
            waiting,
            missing=[len(cut.parts)] * cut.groups,
            left_of=[cut.groups] * len(cut.parts),
            unproven=cut.groups,
        )
        self._left += sum(one.bytes for one in waiting)
        return number

    # ── a stream's questions and news ─────────────────────────────────────────────────────────

    def take(self, path: int, now: Seconds) -> Slice | None:
        """The slice to ask for over `path`, of the pull that must end first; None: none now."""
        best = min(
            (pull for pull in self._pulls.items() if pull[1].waiting),
            key=lambda item: (item[1].deadline, item[0]),
            default=None,
        )
        if best is None:
            return None
        pull = best[1]
        taken = self._takeable(pull, path, now)
        if taken is None:
            return None
        pull.waiting.remove(taken)
        pull.flying += 1
        self._left -= taken.bytes
        self._paths.took(path, taken.bytes, now)
        return taken

    def wanted(self, pull: int) -> bool:
        """Whether somebody still waits for it."""
        return self._pulls[pull].wanted

    def came(self, one: Slice, path: int, now: Seconds) -> Arrival:
        """A slice is here. If it completes a group, `proven` must follow."""
        pull = self._flown(one)
        self._paths.came(path, one.bytes, now)
        pull.missing[one.group] -= 1
        pull.left_of[one.part] -= 1
        whole = not pull.missing[one.group]
        pull.proving += whole
        return Arrival(whole, pull.parts_here)

    def proven(self, pull_number: int) -> int:
        """The pages of a group were checked; returns how many leading parts are here of all."""
        pull = self._pulls[pull_number]
        if pull.proving < 1:
            raise BugError(f"pull {pull_number} has no group to be proven")
        pull.proving -= 1
        pull.unproven -= 1
        return pull.parts_here

    def gave_back(self, one: Slice, path: int, *, blamed: bool, lost: bool = False) -> None:
        """A slice will not come over this connection. `blamed`: it may be the slice's own fault;
        `lost`, as if blamed: it is the path's, so that it goes over another one if there is any."""
        pull = self._flown(one)
        self._paths.gave_back(path, one.bytes)
        if not pull.wanted:
            return
        which = one.group, one.part
        if blamed or lost:
            pull.failed_on.setdefault(which, set()).add(path)
        tries = pull.tries.get(which, 0) + blamed
        pull.tries[which] = tries
        if tries < TRIES:
            pull.waiting.appendleft(one)
            self._left += one.bytes

    # ── ends ──────────────────────────────────────────────────────────────────────────────────

    def cancel(self, pull_number: int) -> None:
        """Nobody wants it any more. It is over when `over` says so."""
        pull = self._pulls[pull_number]
        pull.wanted = False
        self._left -= sum(one.bytes for one in pull.waiting)
        pull.waiting.clear()

    def expire(self, now: Seconds) -> None:
        """Give up what is late, and what can't come before its deadline or at all."""
        hopeless = self._paths.hopeless_until(now)
        refused = self._paths.refused(now)
        for number, pull in self._pulls.items():
            late = pull.deadline <= now
            vain = not pull.flying and (hopeless >= pull.deadline or refused)
            if pull.wanted and (late or vain):
                self.cancel(number)

    def over(self, pull_number: int) -> bool:
        """Whether nothing more will be written for it."""
        pull = self._pulls[pull_number]
        return not (pull.waiting or pull.flying or pull.proving)

    def deadline(self, pull_number: int) -> Seconds:
        """When it is late."""
        return self._pulls[pull_number].deadline

    def parts_here(self, pull_number: int) -> int:
        """How many leading parts are here of all rows; the last not before all was proven."""
        return self._pulls[pull_number].parts_here

    def missing_groups(self, pull_number: int) -> list[int]:
        """Groups of which a part never came."""
        return [group for group, parts in enumerate(self._pulls[pull_number].missing) if parts]

    def forget(self, pull_number: int) -> None:
        """A pull that is over; its number is not used again."""
        if not self.over(pull_number):
            raise BugError(f"pull {pull_number} is not over")
        del self._pulls[pull_number]

    def next_deadline(self) -> Seconds | None:
        """When a pull that is wanted is late next."""
        return min((pull.deadline for pull in self._pulls.values() if pull.wanted), default=None)

    def _takeable(self, pull: _Pull, path: int, now: Seconds) -> Slice | None:
        """The first one that has not been tried; before it, those that were and may go over this
        path."""
        for one in pull.waiting:
            failed_on = pull.failed_on.get((one.group, one.part), ())
            if self._paths.may_take(path, one.bytes, self._left, now, without=failed_on):
                return one
            if not failed_on:
                break
        return None

    def _flown(self, one: Slice) -> _Pull:
        pull = self._pulls[one.pull]
        if pull.flying < 1:
            raise BugError(f"no slice of pull {one.pull} is under way")
        pull.flying -= 1
        return pull
