"""A gateway's process without its process: what a broken law does to it."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from link_kit import PuppetWorker, port, until, worker_info

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.config import as_mapping, build
from antiphon.core.requests import RequestBook
from antiphon.errors import BugError
from antiphon.live import gateway_process
from antiphon.live.admin.client import SOCKET
from antiphon.live.gateway import Keyring
from antiphon.live.gateway_process import GatewayProcess
from antiphon.live.loaded_text import text_of
from antiphon.live.socket_folder import SocketTakenError, gateway_socket, listen
from antiphon.live.supervisor.messages import Children, ChildState, Launch, Present, Stop
from antiphon.live.supervisor.parent import Parent
from antiphon.types import Health, Role, WorkerInfo

pytestmark = pytest.mark.timeout(60)
CONFIG = build({"cluster": {"heartbeat_s": 0.05, "lost_after_s": 20.0}})


class FakeParent:
    """A supervisor that only listens."""

    def __init__(self, folder: Path, drained: tuple[str, ...] = ()) -> None:
        self.config = CONFIG
        self.launch = Launch(
            name="gateway", config=as_mapping(CONFIG), sockets=str(folder), drained=drained
        )
        self.alive = asyncio.Event()
        self.told: list[object] = []
        self.say = lambda message: None

    def listen(self, hear) -> None:
        self.say = hear

    def tell(self, message: object) -> None:
        self.told.append(message)

    def tell_if_read(self, message: object) -> None:
        self.alive.set()


class Running:
    """A `GatewayProcess` that serves. Use as `async with`; `code` is what it ended with."""

    def __init__(self, folder: Path, drained: tuple[str, ...] = ()) -> None:
        folder.chmod(0o700)
        self.door = gateway_socket(folder)
        self.parent = FakeParent(folder, drained)
        text = text_of(open_checkpoint(resolve("smollm2-135m")), CONFIG)
        self.worker = PuppetWorker(_info(text.identity, text.tokenizer.vocab_size))
        self.process = GatewayProcess(cast(Parent, self.parent), text, "", Keyring(), None, None)
        self._listener = socket.create_server(("127.0.0.1", 0))

    async def __aenter__(self) -> "Running":
        self.code = asyncio.create_task(self.process.run(self._listener, None))
        await until(lambda: bool(self.parent.told))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.parent.say(Stop())
        await asyncio.wait([self.code])
        self._listener.close()


def _info(identity: bytes, vocab_size: int) -> WorkerInfo:
    info = worker_info()
    return replace(info, model=replace(info.model, identity=identity, vocab_size=vocab_size))


async def test_told_to_stop_it_ends_well(tmp_path: Path) -> None:
    async with Running(tmp_path) as running, port(running.worker, running.door):
        await until(lambda: running.process._gateway is not None)
    assert running.code.result() == 0


async def test_it_says_over_and_over_that_it_lives(tmp_path: Path) -> None:
    async with Running(tmp_path) as running:
        for _ in range(3):
            running.parent.alive.clear()
            await asyncio.wait_for(running.parent.alive.wait(), 30)


async def test_the_supervisor_hears_of_the_only_worker(tmp_path: Path) -> None:
    """Nothing else joins, no store comes: it would be taken for hung, and killed."""
    async with Running(tmp_path) as running, port(running.worker, running.door):
        only = (str(running.worker.info.id),)
        told = running.parent.told
        await until(lambda: any(isinstance(one, Present) and one.workers == only for one in told))


@pytest.mark.parametrize("state", [None, "ready", "waiting"])
async def test_a_worker_that_an_earlier_gateway_drained_gets_nothing_new(
    tmp_path: Path, state: str | None
) -> None:
    """It joined the next gateway as any other. One whose process died meanwhile is another one."""
    name = str(worker_info().id)
    async with Running(tmp_path, drained=(name,)) as running:
        if state is not None:
            child = ChildState(name=name, role=Role.MIXED, cores=(), state=state, pid=1, life=1)
            running.parent.say(Children((child,)))
        async with port(running.worker, running.door):
            await until(lambda: running.process._gateway is not None)
            gateway = running.process._gateway
            assert gateway is not None
            [member] = gateway.fleet.members()
            expected = Health.JOINED if state == "waiting" else Health.DRAINING
            assert member.health is expected


async def test_one_that_can_not_begin_leaves_no_door_open(tmp_path: Path) -> None:
    running = Running(tmp_path)
    taken = listen(tmp_path / SOCKET)
    try:
        with pytest.raises(SocketTakenError):
            await running.process.run(running._listener, None)
        assert not running.door.exists()
        listen(running.door).close()
    finally:
        taken.close()
        running._listener.close()


def broken(*_: object, **__: object) -> None:
    raise BugError("for a test")


async def test_a_law_that_breaks_while_a_worker_joins_ends_the_process(
    tmp_path: Path, monkeypatch
) -> None:
    """The protocol's callback has no caller but the loop, which would go on."""
    monkeypatch.setattr(RequestBook, "observe", broken)
    async with Running(tmp_path) as running, port(running.worker, running.door):
        with pytest.raises(BugError, match="for a test"):
            await running.code


async def test_so_does_one_before_there_is_a_gateway(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(gateway_process, "judge_join", broken)
    async with Running(tmp_path) as running, port(running.worker, running.door):
        with pytest.raises(BugError, match="for a test"):
            await running.code


async def test_one_in_a_timer_ends_the_process(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(RequestBook, "due", broken)
    async with Running(tmp_path) as running, port(running.worker, running.door):
        await until(lambda: running.process._gateway is not None)
        gateway = running.process._gateway
        assert gateway is not None
        asyncio.get_running_loop().call_soon(gateway._due)
        with pytest.raises(BugError, match="for a test"):
            await running.code
