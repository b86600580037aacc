"""Whether the gateway takes calls: while it drains, loads, or has no worker."""

import asyncio
from dataclasses import replace

import httpx
import pytest
from gateway_kit import chat, serving_fleet
from puppet_cluster import client_of
from puppet_link import PuppetLink, worker_info

from antiphon.core.recorded_run import router_of
from antiphon.live.gateway import create_app
from antiphon.perf import read_times
from antiphon.types import Config, Incarnation, Role, Stage, WorkerId

CHAT = "/v1/chat/completions"


async def test_drain_finishes_what_runs_and_refuses_what_is_new(client, puppet, service, tokenizer):
    running = asyncio.create_task(client.post(CHAT, json=chat()))
    request = await puppet.request()
    draining = asyncio.create_task(service.gateway.drain(10))
    await asyncio.sleep(0)
    refused = await client.post(CHAT, json=chat())
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert (await client.get("/ready")).status_code == 503
    assert (await client.get("/health")).status_code == 200
    assert not draining.done()
    puppet.tokens(request, tokenizer.encode("done"))
    puppet.end(request)
    assert (await running).json()["choices"][0]["message"]["content"] == "done"
    assert await draining is True
    assert len(puppet.requests) == 1


async def test_drain_cancels_what_takes_too_long(client, puppet, service):
    running = asyncio.create_task(client.post(CHAT, json=chat()))
    await puppet.request()
    assert await service.gateway.drain(0.02) is False
    response = await running
    assert response.status_code == 503
    assert puppet.aborts


async def test_without_a_worker_the_gateway_is_healthy_but_not_ready(
    client, puppet, service, tokenizer
):
    """sglang 13657: a peer's death must not get a process killed that can go on."""
    assert (await client.get("/ready")).status_code == 200
    puppet.die()
    while service.gateway.state.value == "ready":
        await asyncio.sleep(0)
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()) == (503, {"status": "no worker"})
    assert (await client.get("/health")).status_code == 200
    response = await client.post(CHAT, json=chat())
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "service_unavailable_error"
    assert response.json()["error"]["code"] == "no_worker"
    again = PuppetLink(replace(puppet.info, incarnation=Incarnation("i1")))
    again.script = lambda request, sequence: tokenizer.encode("Hello")
    assert service.gateway.join(again) is None
    assert (await client.get("/ready")).status_code == 200
    assert (await client.post(CHAT, json=chat())).status_code == 200


@pytest.mark.parametrize("left", ["p", "d"])
async def test_one_worker_of_a_split_fleet_serves_alone_so_it_is_ready(
    tokenizer, template, config, left: str
) -> None:
    """Whichever phase it was for; when it is gone, too, or gets nothing new, it is not."""
    info = worker_info(vocab_size=tokenizer.vocab_size, eos=tokenizer.eos_token_ids)
    roles = {"p": Role.PREFILL, "d": Role.DECODE}
    links = {
        name: PuppetLink(
            replace(info, id=WorkerId(name), incarnation=Incarnation(f"{name}-1"), role=role)
        )
        for name, role in roles.items()
    }
    links[left].script = lambda request, sequence: tokenizer.encode("Hello")
    router = router_of(Config(), info.model, read_times("", step_tokens=512))
    fleet = serving_fleet([*links.values()], router, tokenizer, template, config)
    async with fleet as service, client_of(service) as client:
        (gone,) = (link for name, link in links.items() if name != left)
        gone.die()
        while len(service.gateway.fleet.members()) > 1:
            await asyncio.sleep(0)
        assert (await client.get("/ready")).status_code == 200
        assert (await client.post(CHAT, json=chat())).status_code == 200
        assert links[left].stages == [Stage.WHOLE]
        service.gateway.fleet.drain(links[left].info.id, True)
        assert (await client.get("/ready")).json() == {"status": "no worker"}
        service.gateway.fleet.drain(links[left].info.id, False)
        links[left].die()
        while service.gateway.state.value == "ready":
            await asyncio.sleep(0)
        assert (await client.get("/ready")).status_code == 503


@pytest.mark.parametrize("stream", [False, True])
async def test_the_requests_of_a_lost_worker_can_be_sent_again(client, puppet, stream):
    asking = asyncio.create_task(client.post(CHAT, json=chat(stream=stream, n=2)))
    await puppet.request()
    puppet.die()
    response = await asking
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["type"] == "service_unavailable_error"


async def test_while_the_model_loads(keys):
    app = create_app(None, keys)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/version")).status_code == 200
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "loading"})
        for response in (await client.post(CHAT, json=chat()), await client.get("/v1/models")):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
