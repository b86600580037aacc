"""Planned faults happen when they should, to whom they should, and are counted only if they did."""

from collections.abc import Sequence

import pytest

from antiphon.core.faults import (
    At,
    Boundary,
    Crash,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultPlan,
    LinkFault,
    MessageFault,
    Partition,
    Party,
    ProcessFault,
    Reorder,
    Slow,
    Stall,
    When,
)
from antiphon.sim import Network, VirtualLoop, VirtualProcess
from antiphon.sim.fault_injector import FaultInjector
from antiphon.sim.stream import End

OFFER = Boundary.OFFER


class Duo:
    """`a` says 1, 2, 3, … to `b`, one every 10 ms, from 10 ms on."""

    def __init__(self, *faults: Fault, spared: Sequence[str] = ()) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop)
        self.a, self.b = (VirtualProcess(name, self.loop) for name in "ab")
        self.heard: list[int] = []
        self.end: End | None = None
        processes = {"a": self.a, "b": self.b}
        self.injector = FaultInjector(FaultPlan(0, faults, tuple(spared)), self.network, processes)
        self.a.start()
        self.b.start()
        self.network.listen(self.b, self.accept)
        self.network.dial(self.a, "b", self.opened, lambda: None)
        for number in range(1, 6):
            self.loop.call_at(number * 0.01, lambda number=number: self.say(number))
        self.loop.run()

    def accept(self, end: End) -> None:
        end.heard = self.heard.append

    def opened(self, end: End) -> None:
        self.end = end

    def say(self, number: int) -> None:
        if self.end is not None:
            self.end.send(number, OFFER)


SECOND = When(OFFER, 2)


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (ProcessFault(SECOND, Party.RECEIVER, Crash(None)), [1]),
        (ProcessFault(SECOND, Party.SENDER, Crash(None)), [1, 2]),
        (ProcessFault(SECOND, "b", Crash(0.005)), [1]),
        (ProcessFault(SECOND, Party.RECEIVER, Stall(1.0)), [1, 2, 3, 4, 5]),
        (ProcessFault(At(0.025), "b", Crash(None)), [1, 2]),
        (LinkFault(SECOND, None, Cut()), [1]),
        (LinkFault(At(0.035), ("b", "a"), Cut()), [1, 2, 3]),
        (LinkFault(SECOND, None, Partition(0.5)), [1, 2, 3, 4, 5]),
        (MessageFault(SECOND, Drop()), [1, 3, 4, 5]),
        (MessageFault(SECOND, Delay(0.5)), [1, 2, 3, 4, 5]),
        (MessageFault(SECOND, Duplicate(0.5)), [1, 2, 3, 4, 5, 2]),
        (MessageFault(SECOND, Reorder(0.5)), [1, 3, 4, 5, 2]),
    ],
)
def test_a_fault_does_what_it_says(fault: Fault, heard: list[int]) -> None:
    duo = Duo(fault)
    assert duo.heard == heard
    assert [one.fault for one in duo.injector.injected] == [fault]
    name = type(fault.action).__name__.lower()
    assert duo.injector.counts() == {name: 1}


@pytest.mark.parametrize(
    "fault",
    [
        ProcessFault(When(Boundary.TAKE, 1), "b", Crash(None)),
        ProcessFault(When(OFFER, 9), "b", Crash(None)),
        ProcessFault(SECOND, Party.RECEIVER, Crash(None)),
        MessageFault(When(OFFER, 6), Drop()),
    ],
)
def test_what_did_not_happen_is_not_counted(fault: Fault) -> None:
    duo = Duo(fault, spared=["b"])
    assert duo.heard == [1, 2, 3, 4, 5]
    assert duo.injector.injected == []


def test_the_dead_do_not_die_and_a_stall_does_not_outlive_its_life() -> None:
    duo = Duo(
        ProcessFault(At(0.011), "b", Crash(0.01)),
        ProcessFault(At(0.012), "b", Crash(None)),
        ProcessFault(At(0.013), "a", Stall(0.02)),
        ProcessFault(At(0.014), "a", Stall(0.5)),
        ProcessFault(At(0.015), "a", Crash(0.001)),
        ProcessFault(At(0.020), "a", Stall(0.1)),
        LinkFault(At(0.3), ("a", "b"), Cut()),
    )
    assert duo.injector.counts() == {"crash": 2, "stall": 2}
    assert [(p.crashes, p.stops, p.lives, p.stopped) for p in (duo.a, duo.b)] == [
        (1, 2, 2, False),
        (1, 0, 2, False),
    ]


def test_slowness_ends() -> None:
    duo = Duo(
        ProcessFault(At(0.01), "a", Slow(4.0, 0.1)), ProcessFault(At(0.02), "a", Slow(2.0, 0.01))
    )
    assert duo.a.slow_factor == 1.0
    seen: list[float] = []
    other = VirtualProcess("c", VirtualLoop())
    other.start()
    other.slow_down(4.0)
    seen.append(other.slow_factor)
    other.crash()
    other.start()
    other.speed_up(4.0, life=1)
    seen.append(other.slow_factor)
    assert seen == [4.0, 1.0]
