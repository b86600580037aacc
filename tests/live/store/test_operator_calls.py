"""What operators ask, while other things happen: nothing is left half said, and nobody waits."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from store_kit import FakeGateway, FakeWorker, served, until

from antiphon.core.tiers import Slot
from antiphon.errors import PeerError
from antiphon.live.store.host_memory import HostMemory
from antiphon.types import StoreOp

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


class Gate:
    """Something on a thread stands still at it while it is closed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(60)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        self._open.set()


async def let_in(worker: FakeWorker) -> bool:
    """Whether it is in; it is not while workers of another model are here."""
    try:
        await worker.open()
    except PeerError as error:
        assert error.args[0].startswith("model"), error
        return False
    return True


async def test_workers_of_another_model_end_what_an_operator_waits_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store ended with it: a verify went on with threads that were no longer there."""
    gate, intact = Gate(), HostMemory.intact

    def slow(memory: HostMemory, slots: Sequence[Slot]) -> list[bool]:
        gate.pass_through()
        return intact(memory, slots)

    monkeypatch.setattr(HostMemory, "intact", slow)
    async with served(folder) as path, FakeGateway(path) as gateway:
        async with FakeWorker(path) as worker:
            await worker.put_prompt(blocks=20)
            await worker.put_prompt(blocks=50, seed=1)
            asked = asyncio.create_task(gateway.ask(StoreOp.VERIFY))
            await gate.reached()
        other = FakeWorker(path, identity=bytes(32))
        await until(lambda: let_in(other))
        assert "another model" in (await asked).problem
        gate.open()
        keys = await other.put_prompt(blocks=2)
        assert (await gateway.ask(StoreOp.VERIFY, keys)).problem == ""
        other.close()
