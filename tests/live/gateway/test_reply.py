"""Laws of `Reply`: whatever the reader's pace, it gets every character once and in order."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.live.gateway.reply import Reply
from antiphon.testing.request_records import request_record
from antiphon.types import FinishReason, RequestId, RequestRecord

REQUESTS = (RequestId("a"), RequestId("b"))
N = 2

said = st.tuples(st.sampled_from(REQUESTS), st.integers(0, N - 1), st.text(max_size=3))
looks = st.just("look")


def record(request: RequestId) -> RequestRecord:
    return request_record(
        request,
        finish_reasons=(FinishReason.STOP,) * N,
        prompt_tokens=3,
        cached_tokens=1,
        output_tokens=5,
    )


@settings(deadline=None, max_examples=200)
@given(steps=st.lists(said | looks, max_size=40), wake=st.booleans())
def test_every_character_once_and_in_order(steps, wake):
    reply = Reply({"a": 0, "b": N}, wake)  # type: ignore[arg-type]
    sent = dict.fromkeys(range(2 * N), "")
    got = dict.fromkeys(range(2 * N), "")

    def look() -> None:
        deltas = reply.take()
        assert len({delta.choice for delta in deltas}) == len(deltas) <= 2 * N
        for delta in deltas:
            got[delta.choice] += delta.text

    for step in steps:
        if isinstance(step, str):
            look()
        else:
            request, sequence, text = step
            sent[{"a": 0, "b": N}[request] + sequence] += text
            reply.text(request, sequence, text)
    for request in REQUESTS:
        assert not reply.over
        for sequence in range(N):
            reply.finish(request, sequence, FinishReason.STOP, "")
        reply.settle(record(request), None)
    assert reply.over
    ends = reply.take()
    assert sorted(delta.choice for delta in ends) == list(range(2 * N))
    assert all(delta.finish is FinishReason.STOP for delta in ends)
    for delta in ends:
        got[delta.choice] += delta.text
    assert got == sent
    assert (reply.counts.prompt, reply.counts.cached, reply.counts.output) == (6, 2, 10)
    assert reply.take() == []


async def test_an_unread_reply_holds_one_delta_a_choice():
    reply = Reply({RequestId("a"): 0}, True)
    for _ in range(1000):
        reply.text(RequestId("a"), 0, "x")
    assert len(reply.take()) == 1


async def test_a_reader_of_the_whole_is_woken_once_only_at_the_end():
    reply = Reply({RequestId("a"): 0}, False)
    waiting = asyncio.create_task(reply.changed())
    await asyncio.sleep(0)
    reply.text(RequestId("a"), 0, "x")
    reply.finish(RequestId("a"), 0, FinishReason.STOP, "")
    await asyncio.sleep(0)
    assert not waiting.done()
    reply.settle(record(RequestId("a")), None)
    await asyncio.wait_for(waiting, 1)


async def test_a_cancelled_reader_can_come_back():
    reply = Reply({RequestId("a"): 0}, True)
    first = asyncio.create_task(reply.changed())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    reply.text(RequestId("a"), 0, "x")
    await asyncio.wait_for(reply.changed(), 1)
    assert reply.take()[0].text == "x"


async def test_silence_is_noticed_again_and_again_and_ends_with_close():
    reply = Reply({RequestId("a"): 0}, True)
    loop = asyncio.get_running_loop()
    reply.watch_silence(0.01, loop.time)
    for _ in range(3):
        await asyncio.wait_for(reply.changed(), 1)
        assert reply.quiet
        reply.sent(loop.time())
        assert not reply.quiet
    reply.close()
    reply.close()
    reply.sent(loop.time())
    waiting = asyncio.create_task(reply.changed())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    waiting.cancel()
