"""Negative controls: each fault that is carried out without any effect is found out.

What puts a fault into effect is replaced by something that says it did, and does nothing.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scripted_target import ScriptedTarget

from antiphon.core.faults import (
    GATEWAY,
    STORE,
    At,
    Corrupt,
    Crash,
    Cut,
    FillDisk,
    Lag,
    Restart,
    ScheduledAction,
    ScheduledFault,
    Slow,
    Stall,
)
from antiphon.drill.deeds import Hit, Scene, carry_out
from antiphon.drill.http_proxy import HttpProxy
from antiphon.drill.lives import Life, lives_in
from antiphon.drill.process_fault import process_of
from antiphon.drill.stored_blocks import ChangedByte
from antiphon.errors import PeerError
from antiphon.workload import Ask

DEEDS = "antiphon.drill.deeds"


@pytest.fixture
def target() -> Iterator[ScriptedTarget]:
    target = ScriptedTarget(workers=2, lost_after_s=60.0)
    yield target
    target.end()


@pytest.fixture
def store() -> Iterator[Life]:
    """A process that stands for the store."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield Life(name=STORE, role=STORE, pid=process.pid, life="1", there=True)
        process.kill()


def scene_of(target: ScriptedTarget, proxy: HttpProxy | None = None) -> Scene:
    async def send(ask: Ask) -> None:
        """Nobody is asked."""

    return Scene(
        target=target,
        say=lambda _line: None,
        over=asyncio.Event(),
        send=send,
        proxy=proxy,
        effect_s=0.1,
    )


def hit_of(victim: Life, action: ScheduledAction) -> Hit:
    fault = ScheduledFault(
        number=0, entry=1, trigger=At(0.0), target=victim.name, action=action, once=True
    )
    process = process_of(victim.pid or 0)
    assert process is not None
    return Hit(fault, victim, process, asyncio.get_running_loop().time())


async def worker(target: ScriptedTarget) -> Life:
    return lives_in(await target.status())["mixed-0"]


async def finds_out(scene: Scene, hit: Hit) -> None:
    with pytest.raises(PeerError, match=f"{hit.kind} of {hit.victim.name} had no effect"):
        await carry_out(scene, hit, seed=1)


@pytest.mark.parametrize(
    ("action", "power"),
    [(Crash(None), "kill"), (Stall(0.1), "stop"), (Slow(4.0, 0.3), "stop")],
)
async def test_a_signal_that_did_nothing(
    target: ScriptedTarget, monkeypatch: pytest.MonkeyPatch, action: ScheduledAction, power: str
) -> None:
    monkeypatch.setattr(f"{DEEDS}.process.{power}", lambda _process: True)
    await finds_out(scene_of(target), hit_of(await worker(target), action))


async def test_a_restart_that_nobody_carried_out(target: ScriptedTarget) -> None:
    await finds_out(scene_of(target), hit_of(await worker(target), Restart()))
    assert target.orders == [("mixed-0", "restart")]


async def test_a_stream_that_was_not_shut(
    target: ScriptedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def streams(*_: object) -> list[socket.socket]:
        return [socket.socket()]

    monkeypatch.setattr(f"{DEEDS}.link.control_streams", streams)
    monkeypatch.setattr(f"{DEEDS}.link.shut", lambda _stream: True)
    await finds_out(scene_of(target), hit_of(await worker(target), Cut()))


class PromptProxy(HttpProxy):
    """Delays nothing, whatever it is told."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, 0.0 if name == "lag_s" else value)


@asynccontextmanager
async def ready_server() -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


def gateway(target: ScriptedTarget) -> Life:
    return Life(name=GATEWAY, role=GATEWAY, pid=target.processes[0].pid, life="1", there=True)


async def test_a_delay_that_delays_nothing(target: ScriptedTarget) -> None:
    lag = Lag(by_s=0.05, for_s=0.1)
    async with ready_server() as url, PromptProxy(url) as proxy:
        await finds_out(scene_of(target, proxy), hit_of(gateway(target), lag))
    async with ready_server() as url, HttpProxy(url) as proxy:
        seen = await carry_out(scene_of(target, proxy), hit_of(gateway(target), lag), 1)
        assert seen is not None
        assert proxy.lag_s == 0.0


async def test_a_cut_of_connections_on_which_nothing_is_under_way(target: ScriptedTarget) -> None:
    async with ready_server() as url, HttpProxy(url) as proxy:
        await finds_out(scene_of(target, proxy), hit_of(gateway(target), Cut()))


async def test_a_byte_that_is_as_it_was(
    target: ScriptedTarget, store: Life, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "000000000001.kv"
    file.write_bytes(b"abc")
    changed = ChangedByte(file, 1, was=ord("b"), now=ord("c"))
    monkeypatch.setattr(f"{DEEDS}.store.change_byte", lambda *_: changed)
    await finds_out(scene_of(target), hit_of(store, Corrupt()))


async def test_a_disk_that_has_room(
    target: ScriptedTarget, store: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the limit is set and nothing is refused; then it is not even set."""
    hit = hit_of(store, FillDisk(0.1))
    await finds_out(scene_of(target), hit)
    monkeypatch.setattr(f"{DEEDS}.store.limit_files", lambda *_: -1)
    target.counters = {'antiphon_store_dropped_blocks_total{tier="disk",reason="put_full"}': 1}
    await finds_out(scene_of(target), hit)
