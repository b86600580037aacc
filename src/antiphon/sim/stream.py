"""One stream between two processes: two ends, and a pipe each way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from antiphon.core.faults import Boundary, Delay, Drop, Duplicate, Node, Reorder
from antiphon.types import Seconds

from .virtual_loop import VirtualLoop
from .virtual_process import VirtualProcess

Message: TypeAlias = Any
"""What is sent is not looked into: frozen dataclasses."""
Fate: TypeAlias = Delay | Drop | Duplicate | Reorder


@dataclass(slots=True)
class Traffic:
    """Counts of a run. Once nothing is under way: sent + repeated == delivered + dropped + lost."""

    sent: int = 0
    delivered: int = 0
    """Reached the buffer of a living receiver."""
    dropped: int = 0
    """Vanished from a stream that went on."""
    repeated: int = 0
    aside: int = 0
    """Left out of the order; a message that is dropped or repeated may be so as well."""
    overtaken: int = 0
    """Delivered after something that was sent later on the same stream."""
    lost: int = 0
    """Under way when the stream broke, or when the receiver died or hung up."""
    held: int = 0
    """Had to wait for the end of a partition."""
    late: int = 0
    """Delayed by a fault."""
    cuts: int = 0
    """Streams that were cut."""
    partitions: int = 0
    """Times that two processes were parted."""


class Conditions(Protocol):
    """What a stream needs of its network."""

    loop: VirtualLoop
    traffic: Traffic

    def delay_s(self) -> Seconds:
        """How long the next message takes."""
        ...

    def fates(self, boundary: Boundary, sender: Node, receiver: Node) -> Sequence[Fate]:
        """What happens to the message that is sent now, beyond its delay."""
        ...

    def sent(self, boundary: Boundary, sender: Node, receiver: Node) -> None:
        """A message is on its way: what it sets off happens now."""
        ...

    def parted(self, one: Node, other: Node) -> bool:
        """Does nothing pass between the two now?"""
        ...

    def forget(self, stream: "Stream") -> None:
        """Both ends are closed."""
        ...


def _nobody_hears(_message: Message) -> None:
    """What arrives is not looked at."""


def _nobody_minds() -> None:
    """That the stream ended is told to nobody."""


class End:
    """One side's end of a stream. Its owner sets `heard` and `closed` as soon as it has it."""

    __slots__ = ("closed", "heard", "life", "open", "outgoing", "owner", "peer")

    def __init__(self, owner: VirtualProcess, peer: Node) -> None:
        self.owner = owner
        self.peer = peer
        self.open = True
        self.heard: Callable[[Message], None] = _nobody_hears
        self.closed: Callable[[], None] = _nobody_minds
        """Runs once, unless this side hung up itself."""
        self.life = owner.lives
        self.outgoing: _Pipe | None = None

    def send(self, message: Message, boundary: Boundary) -> None:
        """Send in order. No effect on a closed end: its owner has been or will be told."""
        if self.open and self.outgoing is not None:
            self.outgoing.put(message, boundary)

    def close(self) -> None:
        """Hang up: the peer hears what was sent, then that the stream ended."""
        if self.open and self.outgoing is not None:
            self._end()
            self.closed = _nobody_minds
            self.outgoing.finish()

    @property
    def receives(self) -> bool:
        """Is there somebody who may read what arrives?"""
        owner = self.owner
        return self.open and owner.alive and owner.lives == self.life

    def hang_up(self) -> None:
        """Nothing more will come."""
        if self.open:
            self._end()
            closed, self.closed = self.closed, _nobody_minds
            closed()

    def _end(self) -> None:
        # What is over keeps nobody: not its owner's life, and it is kept by none.
        self.open = False
        self.heard = _nobody_hears
        self.owner.not_at_crash(self.close)


class Stream:
    """Two ends of living processes. Ends itself when one of them dies."""

    __slots__ = ("_conditions", "_pipes", "ends")

    def __init__(
        self, conditions: Conditions, caller: VirtualProcess, answering: VirtualProcess
    ) -> None:
        self.ends = (End(caller, answering.name), End(answering, caller.name))
        self._conditions = conditions
        here, there = self.ends
        self._pipes: Sequence[_Pipe] = (
            _Pipe(self, conditions, here, there),
            _Pipe(self, conditions, there, here),
        )
        for end, pipe in zip(self.ends, self._pipes, strict=True):
            end.outgoing = pipe
            end.owner.at_crash(end.close)

    @property
    def over(self) -> bool:
        """Are both ends closed?"""
        return not any(end.open for end in self.ends)

    def cut(self) -> bool:
        """Break it: what is under way is lost, and both sides are told. False: it was over.

        They are told by themselves, not in the midst of what they are doing.
        """
        if self.over:
            return False
        loop = self._conditions.loop
        for pipe in self._pipes:
            pipe.break_off()
        for end in self.ends:
            told = partial(self._told_of_cut, end)
            loop.call_at(loop.now, lambda end=end, told=told: end.owner.deliver(told))
        return True

    def _told_of_cut(self, end: End) -> None:
        end.hang_up()
        self.forget_if_over()

    def flush(self) -> None:
        """A partition is over: let through what waited."""
        for pipe in self._pipes:
            pipe.flush()

    def forget_if_over(self) -> None:
        """Tell the network when both ends are closed: nobody is left to hear what is under way."""
        if self.over:
            for pipe in self._pipes:
                pipe.break_off()
            self._conditions.forget(self)
            self._pipes = ()  # its parts know each other: else only a search for cycles finds them
            for end in self.ends:
                end.outgoing = None


_END = object()
"""Sent last, and no message: the stream ends."""


class _Pipe:
    """One direction. Keeps order by never letting an item arrive before its predecessor."""

    __slots__ = (
        "_arrives_at",
        "_broken",
        "_conditions",
        "_held",
        "_newest",
        "_numbered",
        "_source",
        "_stream",
        "_target",
    )

    def __init__(self, stream: Stream, conditions: Conditions, source: End, target: End) -> None:
        self._stream = stream
        self._conditions = conditions
        self._source = source
        self._target = target
        self._numbered = 0
        self._newest = 0
        self._arrives_at: Seconds = 0.0
        self._held: list[tuple[int, Message]] = []
        self._broken = False

    def put(self, message: Message, boundary: Boundary) -> None:
        conditions = self._conditions
        sender, receiver = self._source.owner.name, self._target.owner.name
        conditions.traffic.sent += 1
        self._numbered += 1
        fates = conditions.fates(boundary, sender, receiver)
        if fates:
            self._dispatch(message, fates)
        else:
            self._in_order(message, conditions.delay_s())
        conditions.sent(boundary, sender, receiver)

    def finish(self) -> None:
        self._numbered += 1
        self._in_order(_END, self._conditions.delay_s())

    def break_off(self) -> None:
        self._broken = True
        self._conditions.traffic.lost += sum(message is not _END for _, message in self._held)
        self._held.clear()

    def flush(self) -> None:
        held, self._held = self._held, []
        for number, message in held:
            self._arrive(number, message)

    def _dispatch(self, message: Message, fates: Sequence[Fate]) -> None:
        traffic = self._conditions.traffic
        delay_s, aside_s = self._conditions.delay_s(), None
        for fate in fates:
            match fate:
                case Drop():
                    traffic.dropped += 1
                    return
                case Duplicate(after_s):
                    traffic.repeated += 1
                    self._aside(message, delay_s + after_s)
                case Reorder(by_s):
                    traffic.aside += 1
                    aside_s = delay_s + by_s
                case Delay(by_s):
                    traffic.late += 1
                    delay_s += by_s
        if aside_s is None:
            self._in_order(message, delay_s)
        else:
            self._aside(message, aside_s)

    def _in_order(self, message: Message, delay_s: Seconds) -> None:
        loop = self._conditions.loop
        at = loop.now + delay_s
        if at > self._arrives_at:
            self._arrives_at = at
        loop.call_at(self._arrives_at, partial(self._arrive, self._numbered, message))

    def _aside(self, message: Message, delay_s: Seconds) -> None:
        loop = self._conditions.loop
        loop.call_at(loop.now + delay_s, partial(self._arrive, self._numbered, message))

    def _arrive(self, number: int, message: Message) -> None:
        conditions, target = self._conditions, self._target
        if self._broken:
            conditions.traffic.lost += message is not _END
        elif conditions.parted(self._source.owner.name, target.owner.name):
            conditions.traffic.held += 1
            self._held.append((number, message))
        elif message is _END:
            self._end_arrives()
        elif target.receives:
            traffic = conditions.traffic
            traffic.delivered += 1
            if number < self._newest:
                traffic.overtaken += 1
            else:
                self._newest = number
            if target.owner.stopped:
                target.owner.deliver(partial(self._reach, message))
            else:
                target.heard(message)
        else:
            conditions.traffic.lost += 1

    def _end_arrives(self) -> None:
        if self._target.owner.alive:
            self._target.owner.deliver(self._end_target)
        else:
            self._stream.forget_if_over()

    def _reach(self, message: Message) -> None:
        if self._target.open:
            self._target.heard(message)

    def _end_target(self) -> None:
        self._target.hang_up()
        self._stream.forget_if_over()
