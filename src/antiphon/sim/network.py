"""Virtual links between processes: streams that keep their promise, and a mode in which they don't.

The promise is the live wire's: a stream is ordered and loses nothing while it lives; when it breaks
or falls silent, both sides find out by themselves and join anew. A partition holds messages back
(as retransmission does); a cut loses what is under way and tells both sides; a dead process's last
words still arrive, then the end of the stream. `Hostility` and message faults break the promise on
purpose: messages vanish, come twice, or overtake each other.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from antiphon.core.draws import Draws
from antiphon.core.faults import Boundary, Drop, Duplicate, MessageFault, Node, Reorder, When
from antiphon.types import Seconds

from .stream import End, Fate, Stream, Traffic
from .virtual_loop import VirtualLoop
from .virtual_process import VirtualProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostility:
    """How often links break their promise: chances per message, and how late one may come."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late_s: Seconds = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """A message takes `least_s` … `most_s`; a call that nobody takes fails after `refused_s`."""

    least_s: Seconds = 0.0002
    most_s: Seconds = 0.002
    refused_s: Seconds = 0.05


class Network:
    """All links of one run. Draws from `seed`, numbered in the order of sending.

    `fated` says what planned faults do to a message that is about to leave; `noticed` is told once
    it is under way, and may crash its sender.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        seed: int = 0,
        times: LinkTimes | None = None,
        hostility: Hostility | None = None,
    ) -> None:
        self.loop = loop
        self.traffic = Traffic()
        self.crossed: Counter[Boundary] = Counter()
        self.misfortunes: list[MessageFault] = []
        """What hostile links did, as faults that could have been planned."""
        self.fated: Callable[[Boundary], Sequence[Fate]] | None = None
        self.noticed: Callable[[Boundary, Node, Node], None] | None = None
        self._times = times or LinkTimes()
        self._hostility = chances = hostility or Hostility()
        self._hostile = bool(chances.drop or chances.duplicate or chances.reorder)
        self._draws = Draws(seed)
        self._numbered = 0
        self._listeners: dict[Node, tuple[VirtualProcess, Callable[[End], None]]] = {}
        self._streams: dict[tuple[Node, Node], list[Stream]] = {}
        self._partitions: Counter[tuple[Node, Node]] = Counter()

    def listen(self, process: VirtualProcess, accept: Callable[[End], None]) -> None:
        """From now on this life of `process` takes calls; `accept` gets its end of each."""
        self._listeners[process.name] = (process, accept)
        process.at_crash(lambda: self._listeners.pop(process.name, None))

    def dial(
        self,
        caller: VirtualProcess,
        to: Node,
        opened: Callable[[End], None],
        failed: Callable[[], None],
    ) -> None:
        """Call a listener: `opened` or `failed` runs once, in this life of the caller.

        A stopped listener is reached too: its system takes the call for it.
        """
        listener = self._listeners.get(to)
        if listener is None or self.parted(caller.name, to):
            caller.call_at(caller.now + self._times.refused_s, failed)
            return
        answering, accept = listener
        stream = Stream(self, caller, answering)
        self._streams.setdefault(_pair(caller.name, to), []).append(stream)
        here, there = stream.ends
        delay_s = self.delay_s()
        self.loop.call_at(
            self.loop.now + delay_s,
            lambda: answering.deliver(lambda: accept(there) if there.receives else None),
        )
        caller.call_at(caller.now + delay_s, lambda: opened(here) if here.open else failed())

    def cut(self, one: Node, other: Node) -> int:
        """Break all streams between two processes, with what is under way. Returns how many."""
        cut = sum(stream.cut() for stream in self._streams.pop(_pair(one, other), []))
        self.traffic.cuts += cut
        return cut

    def part(self, one: Node, other: Node) -> None:
        """Hold back what passes between two processes, until each `part` has had its `join`."""
        self._partitions[_pair(one, other)] += 1
        self.traffic.partitions += 1

    def join(self, one: Node, other: Node) -> None:
        """End one partition; if it was the last, what waited goes its way."""
        pair = _pair(one, other)
        self._partitions[pair] -= 1
        if not self._partitions[pair]:
            for stream in tuple(self._streams.get(pair, ())):
                stream.flush()

    def parted(self, one: Node, other: Node) -> bool:
        """Does nothing pass between the two now?"""
        if not self._partitions:
            return False
        return self._partitions[_pair(one, other)] > 0

    def open_streams(self) -> int:
        """How many streams have an open end."""
        return sum(not stream.over for streams in self._streams.values() for stream in streams)

    # ── what streams ask ─────────────────────────────────────────────────────────────────────

    def delay_s(self) -> Seconds:
        """The next message's time on its way."""
        if self._times.least_s == self._times.most_s:
            return self._times.least_s
        self._numbered += 1
        return self._draws.between(self._times.least_s, self._times.most_s, self._numbered)

    def fates(self, boundary: Boundary, sender: Node, receiver: Node) -> Sequence[Fate]:
        """What planned faults and hostile links do to the message that is sent now."""
        if self.fated is None and not self._hostile:
            return ()
        self.crossed[boundary] += 1
        planned = () if self.fated is None else self.fated(boundary)
        misfortunes = self._misfortunes() if self._hostile else ()
        if not misfortunes:
            return planned
        for fate in misfortunes:
            when = When(boundary, self.crossed[boundary])
            self.misfortunes.append(MessageFault(when, fate))
        return (*planned, *misfortunes)

    def sent(self, boundary: Boundary, sender: Node, receiver: Node) -> None:
        """A message is under way."""
        if self.noticed is not None:
            self.noticed(boundary, sender, receiver)

    def forget(self, stream: Stream) -> None:
        """A stream is over."""
        pair = _pair(stream.ends[0].owner.name, stream.ends[1].owner.name)
        streams = self._streams.get(pair, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._streams.pop(pair, None)

    def _misfortunes(self) -> Sequence[Fate]:
        chances = self._hostility
        draws, number = self._draws, self._numbered
        late_s = draws.between(0.0, chances.late_s, "late", number)
        drawn = (
            (chances.drop, Drop()),
            (chances.duplicate, Duplicate(late_s)),
            (chances.reorder, Reorder(late_s)),
        )
        return [fate for p, fate in drawn if draws.fraction(type(fate).__name__, number) < p]


def _pair(one: Node, other: Node) -> tuple[Node, Node]:
    return (one, other) if one <= other else (other, one)
