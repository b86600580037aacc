"""The owner is a process: killed, stopped, and started again under the same name."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from link_kit import until
from peer_kit import Owner, Taker, open_descriptors

from antiphon.errors import PeerError
from antiphon.types import Incarnation, LeaseHeld, LeaseId, LeaseRefusal, LeaseRefused

pytestmark = pytest.mark.timeout(120)
CHILD = Path(__file__).with_name("peer_child.py")
LEASE = LeaseId("1")


@asynccontextmanager
async def owner_process(folder: Path, life: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, CHILD, folder, life, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert json.loads(await asyncio.wait_for(process.stdout.readline(), 30))["what"] == "ready"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_killed_owner_is_an_error_at_once_and_its_successor_knows_no_lease(folder) -> None:
    path = folder / "p0.data.sock"
    async with Owner(folder, "p1") as other:
        healthy = Taker(other.path, owner="p1")
        other.leases.granted[LEASE] = (healthy.incarnation, 1)
        async with owner_process(folder, "owner-1") as process:
            taker = Taker(path)
            assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
            assert taker.memories == [b"memory of p0"]
            process.send_signal(signal.SIGSTOP)
            asking = asyncio.create_task(taker.client.take(LEASE, 1))
            await asyncio.sleep(0)
            process.send_signal(signal.SIGKILL)
            with pytest.raises(PeerError):
                await asyncio.wait_for(asking, 5)
        with pytest.raises(PeerError, match="can't be reached"):
            await taker.client.take(LEASE, 1)
        assert await healthy.client.take(LEASE, 1) == LeaseHeld(LEASE)
        async with owner_process(folder, "owner-2"):
            gone = LeaseRefused(LEASE, LeaseRefusal.GONE)
            assert await taker.client.take(LEASE, 1) == gone
            successor = Taker(path, owner_life="owner-2")
            assert await successor.client.take(LEASE, 1) == LeaseHeld(LEASE)
            successor.client.close()
        healthy.client.close()


async def test_a_stopped_owner_costs_a_deadline_and_is_there_again(folder) -> None:
    async with owner_process(folder, "owner-1") as process:
        taker = Taker(folder / "p0.data.sock", timeout_s=0.3)
        assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
        process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{process.pid}/stat")
        await until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        newcomer = Taker(folder / "p0.data.sock", name="d1", timeout_s=0.3)
        with pytest.raises(PeerError, match="did not answer within"):
            await taker.client.take(LEASE, 1)
        with pytest.raises(PeerError, match="no welcome within"):
            await newcomer.client.take(LEASE, 1)
        process.send_signal(signal.SIGCONT)
        await until_held(taker)
        taker.client.close()


async def until_held(taker: Taker) -> None:
    """Its deadline is short: the first call after the stop may still miss it."""
    async with asyncio.timeout(20):
        while True:
            with suppress(PeerError):
                assert await taker.client.take(LEASE, 1) == LeaseHeld(LEASE)
                return


async def test_a_killed_taker_leaves_nothing_at_the_owner(folder) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from peer_kit import Taker\n"
        "async def run():\n"
        "    taker = Taker(Path(sys.argv[1]))\n"
        "    await taker.client.take('1', 1)\n"
        "    print('taken', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(run())\n"
    )
    async with Owner(folder) as owner:
        owner.leases.granted[LEASE] = (Incarnation("d0-1"), 1)
        before = open_descriptors()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            owner.path,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parent,
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 30) == b"taken\n"
        assert owner.port.peers == 1
        process.kill()
        await process.wait()
        await until(lambda: owner.port.peers == 0)
        await until(lambda: open_descriptors() <= before)
