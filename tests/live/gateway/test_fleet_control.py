"""What operators do with workers while requests go on."""

import asyncio

import pytest
from gateway_kit import MODEL
from puppet_cluster import TEXT, client_of

from antiphon.errors import PeerError
from antiphon.live.gateway import FleetControl
from antiphon.types import Health, Incarnation, Role, WorkerId


async def test_a_drained_worker_finishes_gets_nothing_new_and_changes_its_role(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: tokenizer.encode("b")
    body = {"model": MODEL, "prompt": [5, 6, 7]}
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)
        running = asyncio.create_task(client.post(TEXT, json=body))
        request = await a.request()
        draining = asyncio.create_task(control.drain(WorkerId("a"), 30.0))
        await asyncio.sleep(0)
        assert (await client.post(TEXT, json=body)).json()["choices"][0]["text"] == "b"
        assert not draining.done()
        a.tokens(request, tokenizer.encode("a"))
        a.end(request)
        await asyncio.wait_for(draining, 5)
        assert (await running).json()["choices"][0]["text"] == "a"
        members = {member.info.id: member for member in control.members()}
        assert members[WorkerId("a")].health is Health.DRAINING
        await control.set_role(WorkerId("a"), Role.DECODE)
        control.resume(WorkerId("a"))
        members = {member.info.id: member for member in control.members()}
        assert members[WorkerId("a")].health is Health.JOINED
        assert members[WorkerId("a")].info.role is Role.DECODE
        a.script = b.script
        assert (await client.post(TEXT, json=body)).status_code == 200
        assert len(a.requests) == 2
        assert (control.state, control.open_requests) == ("ready", 0)


async def test_a_worker_that_does_not_answer_a_flip_is_lost(pair, monkeypatch):
    """Nobody knows which role it has."""

    async def silent(role):
        raise PeerError("no answer within 10 s")

    monkeypatch.setattr(pair.puppets["a"], "set_role", silent)
    async with pair.serving() as service:
        control = FleetControl(service.gateway, MODEL)
        await control.drain(WorkerId("a"), 1.0)
        with pytest.raises(PeerError, match="no answer"):
            await control.set_role(WorkerId("a"), Role.DECODE)
        control.resume(WorkerId("a"))
        assert [member.info.id for member in control.members()] == ["b"]


async def test_what_a_drain_does_not_wait_for_goes_on_elsewhere(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    words = tokenizer.encode("one two")
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)

        async def workers() -> None:
            request = await a.request()
            a.tokens(request, words[:1])
            await a.read()
            await asyncio.wait_for(control.drain(WorkerId("a"), 0.05), 5)
            assert a.aborts == [(request.id, None)]
            again = await b.request()
            assert again.resumed == (tuple(words[:1]),)
            b.tokens(again, words[1:], first=1)
            b.end(again)

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.json()["choices"][0]["text"] == "one two"


async def test_operators_hear_when_the_worker_is_not_there(pair):
    a = pair.puppets["a"]
    async with pair.serving() as service, client_of(service) as client:
        control = FleetControl(service.gateway, MODEL)
        with pytest.raises(PeerError, match="is not there"):
            await control.drain(WorkerId("x"), 1.0)
        with pytest.raises(PeerError, match="is not there"):
            await control.set_role(WorkerId("x"), Role.MIXED)
        asking = asyncio.create_task(client.post(TEXT, json={"model": MODEL, "prompt": [5]}))
        await a.request()
        draining = asyncio.create_task(control.drain(WorkerId("a"), 30.0))
        await asyncio.sleep(0)
        a.die()
        with pytest.raises(PeerError, match="was lost"):
            await asyncio.wait_for(draining, 5)
        waiting = asyncio.create_task(control.joined(WorkerId("a"), Incarnation("a-1")))
        await asyncio.sleep(0)
        service.gateway.join(pair.puppet("a", life="2"))
        await asyncio.wait_for(waiting, 5)
        asking.cancel()
