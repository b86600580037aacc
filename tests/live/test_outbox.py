import asyncio

import pytest

from antiphon.errors import BugError
from antiphon.live.outbox import Outbox
from antiphon.types import Preempted, RequestId


def event(number: int) -> Preempted:
    return Preempted(request=RequestId("r"), attempt=1, sequence=number)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_reader_takes_all_there_is() -> None:
    outbox = Outbox()
    reader = outbox.read()
    outbox.put_step([event(1), event(2)])
    outbox.put([event(3)])
    assert await anext(reader) == [event(1), event(2), event(3)]
    waiting = asyncio.ensure_future(anext(reader))
    await turns()
    assert not waiting.done()
    outbox.put([])
    await turns()
    assert not waiting.done()
    outbox.put([event(4)])
    assert await waiting == [event(4)]


async def test_at_most_two_steps_are_unread() -> None:
    outbox = Outbox()
    outbox.put_step([event(1)])
    await outbox.room()
    outbox.put_step([event(2)])
    waiting = asyncio.ensure_future(outbox.room())
    await turns()
    assert not waiting.done()
    assert await anext(outbox.read()) == [event(1), event(2)]
    await waiting


async def test_steps_without_events_need_no_reader() -> None:
    outbox = Outbox()
    for _ in range(10):
        outbox.put_step([])
        await outbox.room()
    outbox.put_step([event(1)])
    await outbox.room()


@pytest.mark.parametrize("error", [None, BugError("broken")])
async def test_close_ends_the_reader_after_the_rest(error: BugError | None) -> None:
    outbox = Outbox()
    outbox.put_step([event(1)])
    outbox.put_step([event(2)])
    waiting = asyncio.ensure_future(outbox.room())
    await turns()
    outbox.close(error)
    outbox.close()
    outbox.put([event(3)])
    await waiting
    reader = outbox.read()
    assert await anext(reader) == [event(1), event(2)]
    with pytest.raises(StopAsyncIteration if error is None else BugError):
        await anext(reader)


async def test_close_wakes_a_waiting_reader() -> None:
    outbox = Outbox()
    waiting = asyncio.ensure_future(anext(outbox.read(), None))
    await turns()
    outbox.close()
    assert await waiting is None
