"""What an operator waits for ends when the server stops, and says why."""

import asyncio
import logging

import httpx
import pytest
from scripted_fleet import ScriptedFleet, child

from antiphon.live.admin.app import admin_app
from antiphon.live.admin.ended_by_stop import EndedByStop
from antiphon.live.admin.operations import Operations
from antiphon.live.http_server import HttpServer
from antiphon.live.listener import listen
from antiphon.types import HttpConfig, Role


def fleet_of_two() -> tuple[ScriptedFleet, Operations]:
    fleet = ScriptedFleet(a=Role.MIXED, b=Role.MIXED)
    operations = Operations("tiny", lambda message: None, 60.0)
    operations.attach(fleet)
    return fleet, operations


def ask(client: httpx.AsyncClient, path: str) -> "asyncio.Task[httpx.Response]":
    return asyncio.create_task(client.post(path, json={"timeout_s": 60}, timeout=30))


@pytest.mark.parametrize("path", ["a/drain", "a/restart", "store/restart"])
async def test_who_waits_when_the_server_stops_hears_of_it(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fleet, operations = fleet_of_two()
    fleet.gate.clear()
    operations.children([child("a", Role.MIXED)], child("store", Role.MIXED))
    admin = EndedByStop(admin_app(operations))
    started = asyncio.Event()
    server = HttpServer(admin, max_connections=8, on_started=started.set)
    with listen(HttpConfig(port=0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await started.wait()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/admin/workers/"
        async with httpx.AsyncClient(base_url=url) as client:
            waiting = ask(client, path)
            while not operations.busy:
                await asyncio.sleep(0)
            admin.stop()
            answer = await waiting
            server.should_exit = True
            await serving
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is stopping"
    assert not operations.busy
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_nothing_new_is_begun_and_looking_goes_on() -> None:
    fleet, operations = fleet_of_two()
    admin = EndedByStop(admin_app(operations))
    admin.stop()
    transport = httpx.ASGITransport(admin)
    async with httpx.AsyncClient(transport=transport, base_url="http://x/admin/") as client:
        assert (await ask(client, "workers/a/drain")).status_code == 503
        assert (await client.get("status")).json()["model"] == "tiny"
    assert fleet.calls == []


async def test_before_that_routes_answer_as_ever() -> None:
    _, operations = fleet_of_two()
    transport = httpx.ASGITransport(EndedByStop(admin_app(operations)))
    async with httpx.AsyncClient(transport=transport, base_url="http://x/admin/") as client:
        assert (await ask(client, "workers/a/drain")).json()["health"] == "draining"
        assert (await ask(client, "workers/q/drain")).status_code == 404
