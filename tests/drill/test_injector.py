"""The injector on real processes, whose gateway is a script."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from scripted_target import ScriptedTarget

from antiphon.core.faults import (
    AnyWorker,
    At,
    Boundary,
    Crash,
    Drain,
    FaultSchedule,
    Resume,
    ScheduleEntry,
    Stall,
    When,
    expand,
)
from antiphon.drill.events import EventCounts
from antiphon.drill.injector import Injector
from antiphon.drill.plan import FaultKind, random_faults
from antiphon.errors import PeerError
from antiphon.workload import Ask

STOP_FOR_S = 0.4
LONG_S = 600.0


def stops(stop_for_s: float = STOP_FOR_S) -> FaultSchedule:
    return random_faults(FaultKind.STOP, seed=1, every_s=0.05, stop_for_s=stop_for_s)


@pytest.fixture
def target() -> Iterator[ScriptedTarget]:
    target = ScriptedTarget(workers=3, lost_after_s=60.0)
    yield target
    target.end()


async def some_turns() -> None:
    """Of the event loop: whatever can happen has happened."""
    for _ in range(100):
        await asyncio.sleep(0)


async def answered(ask: Ask) -> None:
    """Nobody is asked."""


def injector_of(
    target: ScriptedTarget, schedule: FaultSchedule, say: Callable[[str], None]
) -> Injector:
    return Injector(
        target,
        expand(schedule, LONG_S),
        schedule.seed,
        say,
        events=EventCounts(target),
        send=answered,
    )


async def injected(target: ScriptedTarget, schedule: FaultSchedule, faults: int) -> Injector:
    """The injector after it has begun at least so many faults, told to stop then."""
    over, said = asyncio.Event(), []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == faults:
            over.set()

    injector = injector_of(target, schedule, say)
    await injector.run(over)
    return injector


async def test_who_goes_on_before_anybody_notices_was_not_given_up(target: ScriptedTarget) -> None:
    injector = await injected(target, stops(), faults=1)
    assert injector.injected
    for fault in injector.injected:
        assert fault.detected_s is None
        assert fault.back_s is not None
        assert fault.back_s >= STOP_FOR_S
    assert not target.stopped()


async def test_who_stands_still_for_long_is_given_up_and_joins_anew(target: ScriptedTarget) -> None:
    target.lost_after_s = 0.05
    injector = await injected(target, stops(), faults=1)
    for fault in injector.injected:
        assert fault.detected_s is not None
        assert fault.back_s is not None
        assert 0.05 <= fault.detected_s <= fault.back_s


async def test_faults_overlap_and_one_worker_is_always_spared(target: ScriptedTarget) -> None:
    """Each is hit while the gateway still takes the others that stand still for joined."""
    injector = await injected(target, stops(), faults=4)
    assert len(injector.injected) >= 4
    assert target.most_stopped == 2
    assert not target.stopped()


async def test_a_killed_worker_is_seen_through_to_its_next_life(target: ScriptedTarget) -> None:
    kills = random_faults(FaultKind.KILL, seed=1, every_s=0.05, stop_for_s=1.0)
    injector = await injected(target, kills, faults=2)
    assert len(injector.injected) >= 2
    assert all(fault.detected_s and fault.back_s for fault in injector.injected)


async def test_who_is_stopped_goes_on_if_the_drill_is_broken_off(target: ScriptedTarget) -> None:
    begun = asyncio.Event()
    injector = injector_of(target, stops(LONG_S), lambda _line: begun.set())
    running = asyncio.create_task(injector.run(asyncio.Event()))
    await begun.wait()
    while not target.stopped():
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not target.stopped()


async def test_who_is_stopped_goes_on_if_the_gateway_is_gone(target: ScriptedTarget) -> None:
    begun = asyncio.Event()
    injector = injector_of(target, stops(LONG_S), lambda _line: begun.set())
    running = asyncio.create_task(injector.run(asyncio.Event()))
    await begun.wait()
    target.broken = True
    with pytest.raises(ExceptionGroup) as caught:
        await running
    assert caught.group_contains(PeerError)
    assert not target.stopped()


def planned(*entries: ScheduleEntry) -> FaultSchedule:
    return FaultSchedule(1, entries)


async def test_who_stands_still_without_end_goes_on_at_its_resume(target: ScriptedTarget) -> None:
    schedule = planned(
        ScheduleEntry(At(0.0), "mixed-1", Stall(float("inf"))),
        ScheduleEntry(At(0.3), "mixed-1", Resume()),
    )
    over = asyncio.Event()
    injector = injector_of(target, schedule, lambda line: over.set() if "resume" in line else None)
    await injector.run(over)
    kinds = {fault.kind: fault for fault in injector.injected}
    assert kinds.keys() == {"stop", "resume"}
    assert kinds["stop"].back_s is not None
    assert kinds["stop"].back_s >= 0.25
    assert not target.stopped()
    assert not injector.not_injected


async def test_who_stands_still_without_end_goes_on_when_the_load_is_over(
    target: ScriptedTarget,
) -> None:
    schedule = planned(ScheduleEntry(At(0.0), "mixed-1", Stall(float("inf"))))
    over = asyncio.Event()
    injector = injector_of(target, schedule, lambda _line: over.set())
    await injector.run(over)
    assert [fault.kind for fault in injector.injected] == ["stop"]
    assert not target.stopped()


async def test_two_faults_of_one_worker_come_one_after_the_other(target: ScriptedTarget) -> None:
    schedule = planned(
        ScheduleEntry(At(0.0), "mixed-0", Stall(0.2)),
        ScheduleEntry(At(0.05), "mixed-0", Crash(None)),
    )
    injector = await injected(target, schedule, faults=2)
    first, second = sorted(injector.injected, key=lambda fault: fault.at_s)
    assert (first.kind, second.kind) == ("stop", "kill")
    assert first.back_s is not None
    assert second.at_s >= first.at_s + first.back_s


async def test_an_event_sets_a_fault_off(target: ScriptedTarget) -> None:
    schedule = planned(ScheduleEntry(When(Boundary.TOKEN, 3), AnyWorker(), Crash(None)))
    over, said = asyncio.Event(), []
    events = EventCounts(target)
    faults = expand(schedule, LONG_S)
    injector = Injector(target, faults, 1, said.append, events=events, send=answered)
    running = asyncio.create_task(injector.run(over))
    await some_turns()
    events.count(Boundary.TOKEN, 2)
    await some_turns()
    assert not said
    events.count(Boundary.TOKEN)
    while not said:
        await asyncio.sleep(0)
    over.set()
    await running
    assert [fault.kind for fault in injector.injected] == ["kill"]


async def test_a_fault_of_its_own_moment_waits_until_somebody_can_be_spared(
    target: ScriptedTarget,
) -> None:
    """Two of three stand still, and the third is not hit before one of them is back."""
    schedule = planned(
        ScheduleEntry(At(0.0), "mixed-0", Stall(0.3)),
        ScheduleEntry(At(0.0), "mixed-1", Stall(0.3)),
        ScheduleEntry(At(0.05), AnyWorker(), Crash(None)),
    )
    injector = await injected(target, schedule, faults=3)
    *stops, kill = sorted(injector.injected, key=lambda fault: fault.at_s)
    assert kill.kind == "kill"
    assert kill.at_s >= min(one.at_s + (one.back_s or 0.0) for one in stops)


async def test_what_could_not_be_done_is_told(target: ScriptedTarget) -> None:
    schedule = planned(
        ScheduleEntry(When(Boundary.END, 1), AnyWorker(), Crash(None)),
        ScheduleEntry(At(0.0), "mixed-7", Crash(None)),
        ScheduleEntry(At(0.0), "mixed-0", Resume()),
    )
    over = asyncio.Event()
    injector = injector_of(target, schedule, lambda _line: None)
    asyncio.get_running_loop().call_later(0.2, over.set)
    await injector.run(over)
    assert not injector.injected
    told = {one.entry: one for one in injector.not_injected}
    assert all(one.fatal for one in told.values())
    assert "event" in told[1].why
    assert "not there" in told[2].why
    assert told[3].kind == "resume"


async def test_a_drain_that_drained_nobody_is_no_drill(target: ScriptedTarget) -> None:
    """The negative control: the order is given, and the worker takes requests as before."""
    schedule = planned(ScheduleEntry(At(0.0), "mixed-0", Drain(0.1)))
    with pytest.raises(ExceptionGroup) as caught:
        await injector_of(target, schedule, lambda _line: None).run(asyncio.Event())
    assert caught.group_contains(PeerError, match="drain of mixed-0 had no effect")
    assert target.orders == [("mixed-0", "drain"), ("mixed-0", "role")]
