"""The other end is a process: killed, stopped, and started again."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from link_child import CHILD_WELCOME
from link_kit import Door, PuppetWorker, port, request, token, until, worker_info

from antiphon.errors import PeerError
from antiphon.live import join_gateway
from antiphon.types import Admitted, RequestId

pytestmark = pytest.mark.timeout(120)
CHILD = Path(__file__).with_name("link_child.py")


class Child:
    """A process, and the lines that it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(json.loads(line))

    def send(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    async def stopped(self) -> None:
        """Return when the kernel has stopped it."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    async def says(self, **facts: object) -> dict:
        def found() -> list[dict]:
            return [line for line in self.said if facts.items() <= line.items()]

        await until(lambda: bool(found()))
        return found()[0]


@asynccontextmanager
async def child(*words: object) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, CHILD, *map(str, words), stdout=subprocess.PIPE
    )
    made = Child(process)
    try:
        await made.says(what="ready")
        yield made
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await made._reading


async def end_of(link) -> str:
    with pytest.raises(PeerError) as found:
        async with asyncio.timeout(20):
            async for _ in link.events():
                pass
    return str(found.value)


async def test_a_killed_worker_is_known_at_once_and_touches_nobody_else(folder) -> None:
    async with (
        Door(folder) as door,
        child("worker", door.path, "w0") as victim,
        child("worker", door.path, "w1"),
    ):
        await until(lambda: len(door.links) == 2)
        links = {link.info.id: link for link in door.links}
        for link in links.values():
            assert isinstance(await link.add(request()), Admitted)
        victim.send(signal.SIGKILL)
        assert "worker w0" in await end_of(links["w0"])
        assert isinstance(await links["w1"].add(request("more")), Admitted)
        async with child("worker", door.path, "w0"):
            assert isinstance(await (await door.link(2)).add(request()), Admitted)


async def test_a_stopped_worker_is_lost_and_does_no_harm_when_it_goes_on(folder) -> None:
    """It neither executes what waited for it nor keeps what it had; it joins in a new life."""
    async with Door(folder, welcome=CHILD_WELCOME) as door, child("worker", door.path, "w0") as w:
        link = await door.link()
        await link.add(request("before"))
        w.send(signal.SIGSTOP)
        await w.stopped()
        meanwhile = asyncio.create_task(link.add(request("meanwhile")))
        assert "nothing was heard for" in await end_of(link)
        with pytest.raises(PeerError):
            await meanwhile
        w.send(signal.SIGCONT)
        again = await door.link(1)
        assert again.info.incarnation == "life-2"
        assert (await w.says(what="life"))["left"] == []
        assert await w.says(what="abort", id="before", life="life-1")
        one = request("before", attempt=2)
        await again.add(one)
        assert await anext(again.events()) == [token(one, 0)]
        assert not [line for line in w.said if line.get("id") == "meanwhile"]


async def test_a_short_stop_is_survived(folder) -> None:
    async with Door(folder) as door, child("worker", door.path, "w0") as w:
        link = await door.link()
        w.send(signal.SIGSTOP)
        await w.stopped()
        adding = asyncio.create_task(link.add(request()))
        await asyncio.sleep(0)
        w.send(signal.SIGCONT)
        assert isinstance(await adding, Admitted)
        assert len(door.links) == 1


async def test_a_killed_gateway_leaves_nothing_behind_in_its_workers(folder) -> None:
    worker = PuppetWorker(worker_info())
    path = folder / "gateway.sock"
    async with port(worker, path) as serving:
        async with child("gateway", path) as gateway:
            await until(lambda: bool(worker.running))
            gateway.send(signal.SIGKILL)
            await until(lambda: len(serving.lives.left) >= 1)
            assert worker.running == {}
        async with child("gateway", path):
            await until(lambda: f"for-{worker.info.incarnation}" in worker.running)
            assert worker.info.incarnation != "life-1"


async def test_a_stopped_gateway_is_given_up_and_found_again(folder, monkeypatch) -> None:
    """Hellos that it finds when it goes on are from lives that are over: each joins once at most,
    and the last one stays."""
    monkeypatch.setattr(join_gateway, "JOIN_TIMEOUT_S", 0.1)
    worker = PuppetWorker(worker_info())
    path = folder / "gateway.sock"
    async with child("gateway", path) as gateway, port(worker, path) as serving:
        await until(lambda: bool(worker.running))
        gateway.send(signal.SIGSTOP)
        await gateway.stopped()
        worker.say(token(worker.running[RequestId("for-life-1")], 0))
        await until(lambda: len(serving.lives.left) >= 4)
        assert worker.running == {}
        gateway.send(signal.SIGCONT)
        await until(lambda: bool(worker.running))
        (given,) = worker.running.values()
        assert given.id == f"for-{worker.info.incarnation}"
        worker.say(token(given, 0))
        await gateway.says(what="events", count=1, life=worker.info.incarnation)
        lives = [line["life"] for line in gateway.said if line["what"] == "joined"]
        assert len(lives) == len(set(lives))


def test_the_gateways_side_loads_no_torch() -> None:
    program = (
        "import sys, antiphon.live.join_socket, antiphon.live.remote_worker;"
        "sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
