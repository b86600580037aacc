"""What a worker behind a socket may say, and how much at once; who says more loses its stream."""

from dataclasses import replace

import pytest
from link_kit import (
    Door,
    ends,
    next_batch,
    offer,
    port,
    request,
    token,
    until,
)

from antiphon.errors import PeerError
from antiphon.types import (
    Admitted,
    AttemptFailed,
    LeaseId,
    Rejected,
    RejectReason,
    Stage,
    WorkerId,
)
from antiphon.wire import Kind, codec

pytestmark = pytest.mark.timeout(60)
LEASE = LeaseId("lease")


def shrink(monkeypatch, kind: Kind, max_bytes: int) -> None:
    entry = replace(codec._ENTRIES[kind], max_bytes=max_bytes)
    monkeypatch.setitem(codec._ENTRIES, kind, entry)


async def test_a_prompt_that_no_message_holds_is_refused_and_the_stream_lives(
    folder, worker, monkeypatch
) -> None:
    shrink(monkeypatch, Kind.DISPATCH, 2000)
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        answer = await link.add(request(prompt=(900,) * 5000))
        assert isinstance(answer, Rejected)
        assert answer.reason is RejectReason.TOO_LONG
        assert await link.add(request()) == Admitted(request=request().id)


async def test_too_many_events_go_in_parts_and_too_long_an_offer_is_given_up(
    folder, worker, monkeypatch
) -> None:
    shrink(monkeypatch, Kind.EVENTS, 2000)
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one, two = request("one"), request("two")
        await link.add(one)
        await link.add(two, Stage.PREFILL)
        tokens = [token(one, index) for index in range(100)]
        worker.say(*tokens, token(two, 0), offer(two, pages=500))
        got: list = []
        reader = link.events()
        while not got or type(got[-1]) is not AttemptFailed:
            got += await next_batch(reader)
        assert got[:-1] == [*tokens, token(two, 0)]
        assert got[-1].request == two.id
        assert "the offer can't be told" in got[-1].message
        assert worker.calls("release") == [(LEASE,)]


@pytest.mark.parametrize("changed", [{"owner": WorkerId("../w1")}, {"incarnation": "life-0"}])
async def test_a_worker_offers_only_what_is_its_own(folder, worker, changed) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request()
        await link.add(one, Stage.PREFILL)
        worker.say(replace(offer(one), **changed))
        assert "it offers what is of" in await ends(link.events())


@pytest.mark.parametrize("strange", [-1, 1000, 2**40])
async def test_a_token_that_is_none_of_the_models_loses_the_worker(
    folder, worker, strange: int
) -> None:
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        one = request()
        await link.add(one)
        worker.say(replace(token(one, 0), token=strange))
        with pytest.raises(PeerError, match=f"what can't be: token is {strange}, of 1000"):
            await next_batch(link.events())
        await until(lambda: not door.socket.present or link is not door.links[-1])


async def test_a_report_without_pages_loses_the_worker(folder, worker, monkeypatch) -> None:
    view = worker.view()
    async with Door(folder) as door, port(worker, door.path):
        link = await door.link()
        monkeypatch.setattr(worker, "view", lambda: replace(view, total_pages=0, free_pages=0))
        assert "what can't be: total_pages is 0" in await ends(link.events())
        assert link.view().total_pages == 8
