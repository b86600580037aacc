"""Events are counted from when the watch begins, over lives of the gateway and the workers."""

import asyncio
from collections.abc import Iterator

import pytest
from scripted_target import ScriptedTarget

from antiphon.core.faults import Boundary, When
from antiphon.drill.events import EventCounts
from antiphon.drill.process_fault import kill, process_of


@pytest.fixture
def target() -> Iterator[ScriptedTarget]:
    target = ScriptedTarget(workers=2, lost_after_s=60.0)
    yield target
    target.end()


async def reached(counts: EventCounts, boundary: Boundary, occurrence: int) -> None:
    await counts.reached(When(boundary, occurrence))


async def test_counters_of_all_workers_are_added_and_a_new_gateway_counts_from_0(
    target: ScriptedTarget,
) -> None:
    target.counters = {'antiphon_offers_total{worker="p-0"}': 7, "antiphon_offers_total_x": 90}
    counts = EventCounts(target)
    watching = asyncio.create_task(counts.watch(frozenset({Boundary.OFFER})))
    waiting = asyncio.create_task(reached(counts, Boundary.OFFER, 5))
    await target.read()
    target.counters |= {'antiphon_offers_total{worker="p-1"}': 3}
    await target.read()
    assert not waiting.done()
    target.counters = {'antiphon_offers_total{worker="p-0"}': 2}
    await waiting
    watching.cancel()


async def test_a_worker_joins_in_a_new_life(target: ScriptedTarget) -> None:
    counts = EventCounts(target)
    watching = asyncio.create_task(counts.watch(frozenset({Boundary.JOIN})))
    waiting = asyncio.create_task(reached(counts, Boundary.JOIN, 1))
    await target.read()
    assert not waiting.done()
    process = process_of(target.processes[1].pid)
    assert process is not None
    assert kill(process)
    await waiting
    watching.cancel()


async def test_what_came_before_the_watch_does_not_count(target: ScriptedTarget) -> None:
    counts = EventCounts(target)
    counts.count(Boundary.TOKEN, 5)
    watching = asyncio.create_task(counts.watch(frozenset()))
    waiting = asyncio.create_task(reached(counts, Boundary.TOKEN, 2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    counts.count(Boundary.TOKEN)
    counts.count(Boundary.TOKEN)
    await waiting
    watching.cancel()
