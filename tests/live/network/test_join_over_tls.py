"""Workers of other hosts: who may join as whom, what passes, and how they leave."""

import asyncio
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from link_kit import PuppetWorker, port, request, token, until, worker_info
from network_kit import LOOPBACK, address_of, gateway_on_tls, host_worker, keys_of, make_keys

from antiphon.errors import PeerError, UsageError
from antiphon.live import join_socket, worker_port
from antiphon.live.join_gateway import join_gateway
from antiphon.live.network import tls_door
from antiphon.types import Admitted, Hello, JoinRefusal, JoinRefused, WorkerInfo

pytestmark = pytest.mark.timeout(60)
YEARS_S = 1e8
"""Clocks of hosts may differ by that: here the worker's is so much behind."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    make_keys(tmp_path / "keys", "box1", "box2", "box3")
    return tmp_path


async def test_requests_and_tokens_pass_whatever_the_clocks_show(folder: Path) -> None:
    """What is left until a deadline crosses, never a point in time."""
    keys = folder / "keys"
    puppet = PuppetWorker(host_worker())

    def worker_clock() -> float:
        return time.monotonic() - YEARS_S

    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        there = address_of(number, keys_of(keys, "box2"))
        async with port(puppet, there, clock=worker_clock):
            link = await door.link()
            assert (link.info, link.transport) == (puppet.info, "tls")
            sent = request("r", deadline=time.monotonic() + 100, arrived_at=time.monotonic() - 50)
            assert isinstance(await link.add(sent), Admitted)
            [(heard, _)] = puppet.calls("add")
            assert 0 < heard.deadline - worker_clock() <= 100
            assert 50 <= worker_clock() - heard.arrived_at < 150
            puppet.say(token(heard, 0))
            async for batch in link.events():
                assert tuple(batch) == (token(heard, 0),)
                break


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (host_worker("box3.w0", host="box3"), "certificate is of host box2"),
        (host_worker("box3.w0"), "must be called box2."),
        (host_worker("w0"), "must be called box2."),
        (host_worker("box2.w0", host="box1"), "certificate is of host box2"),
    ],
)
async def test_a_host_joins_as_itself_alone(folder: Path, info: WorkerInfo, says: str) -> None:
    keys = folder / "keys"
    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        there = address_of(number, keys_of(keys, "box2"))
        hello = Hello(info, PuppetWorker(info).view())
        with pytest.raises(UsageError, match=says):
            await join_gateway(there, hello, lambda *_: None, time.monotonic)
        assert not door.socket.present


async def test_the_reason_of_a_refusal_reaches_the_worker(folder: Path) -> None:
    keys = folder / "keys"

    def judge(info, present):
        return JoinRefused(reason=JoinRefusal.MODEL, message="another model: change it")

    async with (
        gateway_on_tls(folder, keys_of(keys, "box1"), judge=judge) as (_, number),
        port(PuppetWorker(host_worker()), address_of(number, keys_of(keys, "box2"))) as serving,
    ):
        with pytest.raises(UsageError, match="another model: change it"):
            await asyncio.wait_for(asyncio.shield(serving.run), 20)


async def test_a_certificate_that_has_expired_is_not_taken_and_a_hint_is_given(
    folder: Path,
) -> None:
    keys = folder / "keys"
    make_keys(keys, "old", days=-1)
    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        expired = replace(keys_of(keys, "box2"), folder=keys / "old")
        hello = Hello(host_worker(), PuppetWorker(host_worker()).view())
        with pytest.raises(PeerError, match="are this host's keys in force"):
            await join_gateway(address_of(number, expired), hello, lambda *_: None, time.monotonic)
        assert not door.socket.present


async def test_a_worker_leaves_when_the_gateway_has_nothing_left_for_it(folder: Path) -> None:
    keys = folder / "keys"
    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        asked: list[tuple[str, float]] = []
        door.socket.on_leave = lambda worker, timeout_s: asked.append((worker.info.id, timeout_s))
        there = address_of(number, keys_of(keys, "box2"))
        async with port(PuppetWorker(host_worker()), there) as serving:
            link = await door.link()
            leaving = asyncio.create_task(serving.port.leave(7.0))
            await until(lambda: asked == [("box2.w0", 7.0)])
            assert not leaving.done()
            link.let_leave()
            await asyncio.wait_for(leaving, 20)


async def test_a_worker_whose_gateway_goes_away_leaves_at_once(folder: Path) -> None:
    keys = folder / "keys"
    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        there = address_of(number, keys_of(keys, "box2"))
        async with port(PuppetWorker(host_worker()), there) as serving:
            link = await door.link()
            leaving = asyncio.create_task(serving.port.leave(7.0))
            await link.close("the gateway is shutting down")
            await asyncio.wait_for(leaving, 20)


async def test_a_worker_joins_anew_when_its_gateway_is_there_again(folder: Path) -> None:
    keys = folder / "keys"
    puppet = PuppetWorker(host_worker())
    async with gateway_on_tls(folder, keys_of(keys, "box1")) as (door, number):
        there = address_of(number, keys_of(keys, "box2"))
        async with port(puppet, there):
            first = await door.link(0)
            first_life = first.info.incarnation
            await first.close("once")
            again = await door.link(1)
            assert again.info.incarnation != first_life


async def test_a_gateway_that_is_not_there_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried, with what to look at."""
    tries: list[None] = []

    async def refused(*_: object) -> None:
        tries.append(None)
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(worker_port, "join_gateway", refused)
    there = address_of(1, keys_of(folder / "keys", "box2"))
    async with port(PuppetWorker(host_worker()), there):
        await until(lambda: len(tries) > 4)
    [said] = [line for line in caplog.messages if "not joined yet" in line]
    assert "antiphon serve" in said


async def test_who_comes_from_elsewhere_takes_no_place_of_this_host(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody without a certificate keeps a gateway's own workers out, however many come."""
    monkeypatch.setattr(join_socket, "MAX_STRANGERS", 2)
    monkeypatch.setattr(join_socket, "JOIN_TIMEOUT_S", 100.0)
    monkeypatch.setattr(tls_door, "HANDSHAKE_TIMEOUT_S", 100.0)
    async with gateway_on_tls(folder, keys_of(folder / "keys", "box1")) as (door, number):
        silent = [socket.create_connection((LOOPBACK, number)) for _ in range(4)]
        await until(lambda: len(door.socket._strangers) == 2)
        async with port(PuppetWorker(worker_info()), door.path):
            assert (await door.link()).transport == "unix"
        for connection in silent:
            connection.close()
