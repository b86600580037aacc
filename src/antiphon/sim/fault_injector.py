"""Carries out a fault plan on virtual processes and links, and says what came of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from antiphon.core.faults import (
    STORE,
    At,
    Boundary,
    CopyFault,
    Crash,
    Cut,
    Damage,
    Fault,
    FaultPlan,
    FillDisk,
    LinkFault,
    LoseBlocks,
    MessageFault,
    Node,
    Partition,
    Party,
    ProcessFault,
    Slow,
    Stall,
    StoreFault,
    When,
    action_name,
)
from antiphon.types import Seconds

from .network import Network
from .shadow_store import ShadowStore
from .stream import Fate
from .virtual_process import VirtualProcess


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that really happened: whom it hit was there, and was changed by it."""

    at: Seconds
    fault: Fault
    hit: tuple[Node, ...]


class FaultyStore(Protocol):
    """What faults of the store hit. Its length: blocks that it has."""

    def __len__(self) -> int: ...

    def fill(self) -> None:
        """Its disk is full, until each `fill` has had its `make_room`."""
        ...

    def make_room(self) -> None:
        """End one `fill`."""
        ...

    def lose_all(self) -> None:
        """Nobody can have any block any more."""
        ...


class FaultInjector:
    """Waits for the triggers of a plan. Build it before anything is sent.

    A fault that finds nothing to hit (the process is dead, or stopped, or spared; no stream is
    there to cut; nothing is in the store; the n-th message never comes) has not happened:
    `injected` lists only those that have, in order.
    """

    def __init__(
        self,
        plan: FaultPlan,
        network: Network,
        processes: Mapping[Node, VirtualProcess],
        store: FaultyStore | None = None,
    ) -> None:
        self.injected: list[Injected] = []
        self._plan = plan
        self._network = network
        self._loop = network.loop
        self._processes = processes
        self._store: FaultyStore = ShadowStore() if store is None else store
        self._crossings: Counter[Boundary] = Counter()
        self._waiting: dict[When, list[Fault]] = {}
        for fault in plan.faults:
            match fault.trigger:
                case At(seconds):
                    self._loop.call_at(seconds, lambda fault=fault: self._happen(fault, "", ""))
                case When() as when:
                    self._waiting.setdefault(when, []).append(fault)
        if self._waiting:  # else nothing ever will: what crosses need not be counted
            network.fated = self._fates
            network.noticed = self._notice

    def counts(self) -> Counter[str]:
        """How many faults of each action happened, by its name."""
        return Counter(action_name(one.fault.action) for one in self.injected)

    def _fates(self, boundary: Boundary) -> Sequence[Fate]:
        """What becomes of the message that now crosses: the first of what is planned for it."""
        if not self._waiting:
            return ()
        self._crossings[boundary] += 1
        for fault in self._waiting.get(When(boundary, self._crossings[boundary]), ()):
            if isinstance(fault, MessageFault):
                self._note(fault)
                return (fault.action,)
        return ()

    def _notice(self, boundary: Boundary, sender: Node, receiver: Node) -> None:
        """The message that was counted last is under way."""
        if not self._waiting:
            return
        for fault in self._waiting.pop(When(boundary, self._crossings[boundary]), ()):
            self._happen(fault, sender, receiver)

    def crossed(self, boundary: Boundary, sender: Node, receiver: Node) -> Damage | None:
        """KV is copied: no message, and nothing that gets lost. Returns what befalls the copy."""
        self._crossings[boundary] += 1
        planned = self._waiting.get(When(boundary, self._crossings[boundary]), ())
        damages = [fault for fault in planned if isinstance(fault, CopyFault)]
        self._notice(boundary, sender, receiver)
        copying = self._processes[sender if boundary is Boundary.PUT else receiver]
        if not damages or not copying.alive:
            return None
        self._note(damages[0], copying.name)
        return damages[0].action

    def _note(self, fault: Fault, *hit: Node) -> None:
        self.injected.append(Injected(self._loop.now, fault, hit))

    def _happen(self, fault: Fault, sender: Node, receiver: Node) -> None:
        match fault:
            case ProcessFault(whom=Party() as party, action=action):
                node = sender if party is Party.SENDER else receiver
                if node not in self._plan.spared and node in self._processes:
                    self._hit_process(fault, node, action)
            case ProcessFault(whom=node, action=action):
                self._hit_process(fault, node, action)
            case LinkFault(link=link, action=action):
                self._hit_link(fault, link or (sender, receiver), action)
            case StoreFault(action=action):
                self._hit_store(fault, action)
            case MessageFault() | CopyFault():
                pass  # they are carried out where the message, or the copy, is
            case _:
                assert_never(fault)

    def _hit_process(self, fault: Fault, node: Node, action: Crash | Stall | Slow) -> None:
        process = self._processes.get(node)
        if process is None or not process.alive or (process.stopped and isinstance(action, Stall)):
            return
        self._note(fault, node)
        life, now = process.lives, self._loop.now
        match action:
            case Crash(restart_after_s):
                process.crash()
                if restart_after_s is not None:
                    self._loop.call_at(now + restart_after_s, lambda: self._restart(process))
            case Stall(for_s):
                process.stop()
                self._loop.call_at(
                    now + for_s, lambda: process.go_on() if process.lives == life else None
                )
            case Slow(factor, for_s):
                process.slow_down(factor)
                self._loop.call_at(now + for_s, lambda: process.speed_up(factor, life))

    def _restart(self, process: VirtualProcess) -> None:
        """Unless it was given up meanwhile."""
        if self._processes.get(process.name) is process:
            process.start()

    def _hit_link(self, fault: Fault, link: tuple[Node, Node], action: Partition | Cut) -> None:
        one, other = link
        if not {one, other} <= self._processes.keys():
            return  # the store is reached without a stream
        match action:
            case Cut():
                if self._network.cut(one, other):
                    self._note(fault, one, other)
            case Partition(for_s):
                self._note(fault, one, other)
                self._network.part(one, other)
                self._loop.call_at(self._loop.now + for_s, lambda: self._network.join(one, other))

    def _hit_store(self, fault: Fault, action: FillDisk | LoseBlocks) -> None:
        store = self._store
        match action:
            case FillDisk(for_s):
                self._note(fault, STORE)
                store.fill()
                self._loop.call_at(self._loop.now + for_s, store.make_room)
            case LoseBlocks():
                if len(store):
                    self._note(fault, STORE)
                    store.lose_all()
