"""Seeded plans: the same seed and mix give the same faults, on every machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from antiphon.core.draws import Draws
from antiphon.errors import BugError
from antiphon.types import Seconds

from .fault import (
    COPIES,
    WITHOUT_STORE,
    At,
    Boundary,
    CopyFault,
    Corrupt,
    Crash,
    Cut,
    Damage,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultPlan,
    FillDisk,
    LinkFault,
    LoseBlocks,
    MessageFault,
    Node,
    PartialWrite,
    Partition,
    Party,
    ProcessFault,
    Reorder,
    Slow,
    StaleGeneration,
    Stall,
    StoreFault,
    Trigger,
    When,
)


class Kind(StrEnum):
    """The actions by name."""

    CRASH = "crash"
    STALL = "stall"
    SLOW = "slow"
    PARTITION = "partition"
    CUT = "cut"
    DELAY = "delay"
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    CORRUPT = "corrupt"
    PARTIAL_WRITE = "partial-write"
    STALE_GENERATION = "stale-generation"
    FILL_DISK = "fill-disk"
    LOSE_BLOCKS = "lose-blocks"


DISHONEST = (Kind.DROP, Kind.DUPLICATE, Kind.REORDER)
"""Kinds that break the promise of a stream, which real links keep."""
COPYING = (Kind.CORRUPT, Kind.PARTIAL_WRITE, Kind.STALE_GENERATION)
"""Kinds that befall KV while it is copied, and are found by whoever copies it."""
STORING = (Kind.FILL_DISK, Kind.LOSE_BLOCKS)
"""Kinds that befall the store."""
HONEST = tuple(kind for kind in Kind if kind not in (*DISHONEST, *COPYING, *STORING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What a plan is drawn from.

    `nodes` may crash, stall and be slow; a link fault hits two of `nodes` and `spared` (processes
    that never crash, stall or are slow). Times are drawn from 0 … `duration_s`, lengths of
    stalls and partitions from 0 … `longest_s`. `restarts`: whoever crashes comes back.
    `by_messages`: some faults are set off by messages, and may then hit whoever sends or gets
    them; without it all have their points in time and name whom they hit. `boundaries`: where that
    may be, the `latest`-th time at most.
    """

    nodes: tuple[Node, ...]
    spared: tuple[Node, ...] = ()
    kinds: tuple[Kind, ...] = HONEST
    faults: int = 4
    duration_s: Seconds = 1.0
    longest_s: Seconds = 1.0
    restarts: bool = True
    by_messages: bool = True
    boundaries: tuple[Boundary, ...] = WITHOUT_STORE
    latest: int = 6


def plan(seed: int, mix: Mix) -> FaultPlan:
    """Draws 1 … `mix.faults` faults; none if `mix.faults` is 0. Pure.

    Raises `BugError` for a mix without nodes or kinds, with faults of links and no two ends, or of
    copies and no boundary where one is made.
    """
    links = {Kind.PARTITION, Kind.CUT} & set(mix.kinds)
    if not mix.nodes or not mix.kinds or (links and len(mix.nodes) + len(mix.spared) < 2):
        raise BugError(f"no faults of kinds {mix.kinds} can hit {mix.nodes} and {mix.spared}")
    if set(COPYING) & set(mix.kinds) and not set(COPIES) & set(mix.boundaries):
        raise BugError(f"nothing is copied at {mix.boundaries}")
    draws = Draws(seed)
    count = 1 + draws.below(mix.faults, "count") if mix.faults else 0
    faults = tuple(_Drawn(draws, mix, number).fault() for number in range(count))
    return FaultPlan(seed, faults, mix.spared)


class _Drawn:
    """One fault of a plan."""

    def __init__(self, draws: Draws, mix: Mix, number: int) -> None:
        self._draws = draws
        self._mix = mix
        self._number = number

    def fault(self) -> Fault:
        kind = self._draws.choice(self._mix.kinds, self._number, "kind")
        match kind:
            case Kind.CRASH | Kind.STALL | Kind.SLOW:
                return self._process_fault(kind)
            case Kind.PARTITION | Kind.CUT:
                return self._link_fault(kind)
            case Kind.CORRUPT | Kind.PARTIAL_WRITE | Kind.STALE_GENERATION:
                return CopyFault(self._when(COPIES), _DAMAGES[kind])
            case Kind.FILL_DISK:
                return StoreFault(self._trigger(), FillDisk(self._length_s()))
            case Kind.LOSE_BLOCKS:
                return StoreFault(self._trigger(), LoseBlocks())
            case Kind.DELAY | Kind.DROP | Kind.DUPLICATE | Kind.REORDER:
                return MessageFault(self._when(), _MESSAGE_ACTIONS[kind](self._length_s() / 4))

    def _process_fault(self, kind: Kind) -> Fault:
        trigger, length_s = self._trigger(), self._length_s()
        actions: Mapping[Kind, Crash | Stall | Slow] = {
            Kind.CRASH: Crash(length_s if self._mix.restarts else None),
            Kind.STALL: Stall(length_s),
            Kind.SLOW: Slow(1.0 + self._draws.below(8, self._number, "factor"), length_s),
        }
        whom: Node | Party = self._draws.choice(self._mix.nodes, self._number, "node")
        if isinstance(trigger, When) and self._draws.below(2, self._number, "party?"):
            whom = self._draws.choice(tuple(Party), self._number, "party")
        return ProcessFault(trigger, whom, actions[kind])

    def _link_fault(self, kind: Kind) -> Fault:
        trigger = self._trigger()
        action = Cut() if kind is Kind.CUT else Partition(self._length_s())
        if isinstance(trigger, When):
            return LinkFault(trigger, None, action)
        ends = (*self._mix.nodes, *self._mix.spared)
        first = self._draws.below(len(ends), self._number, "end")
        step = 1 + self._draws.below(max(len(ends) - 1, 1), self._number, "other end")
        return LinkFault(trigger, (ends[first], ends[(first + step) % len(ends)]), action)

    def _trigger(self) -> Trigger:
        if self._mix.by_messages and self._draws.below(2, self._number, "trigger"):
            return self._when()
        return At(self._draws.between(0.0, self._mix.duration_s, self._number, "at"))

    def _when(self, among: Sequence[Boundary] = tuple(Boundary)) -> When:
        possible = tuple(one for one in self._mix.boundaries if one in among)
        boundary = self._draws.choice(possible, self._number, "boundary")
        occurrence = 1 + self._draws.below(self._mix.latest, self._number, "occurrence")
        return When(boundary, occurrence)

    def _length_s(self) -> Seconds:
        """Short ones are as likely as long ones: 1/1000 of the longest … the longest."""
        return self._mix.longest_s * 10 ** self._draws.between(-3, 0, self._number, "length")


_DAMAGES: Mapping[Kind, Damage] = {
    Kind.CORRUPT: Corrupt(),
    Kind.PARTIAL_WRITE: PartialWrite(),
    Kind.STALE_GENERATION: StaleGeneration(),
}
_MESSAGE_ACTIONS: Mapping[Kind, Callable[[Seconds], Delay | Drop | Duplicate | Reorder]] = {
    Kind.DELAY: Delay,
    Kind.DROP: lambda _: Drop(),
    Kind.DUPLICATE: Duplicate,
    Kind.REORDER: Reorder,
}
