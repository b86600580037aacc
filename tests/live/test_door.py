"""A door: one caller's trouble is its own, a broken law is everybody's."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from link_kit import until

from antiphon.errors import BugError, PeerError
from antiphon.live.door import Door
from antiphon.live.loop_guard import guard_loop

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "door.sock"


class Host:
    """Greets with one line; raises what it is told to."""

    def __init__(self) -> None:
        self.raises: BaseException | None = None
        self.waits = asyncio.Event()
        self.waits.set()
        self.greeting = 0

    async def greet(self, connection: socket.socket) -> None:
        self.greeting += 1
        await self.waits.wait()
        if self.raises is not None:
            raise self.raises
        connection.sendall(b"hello")
        connection.close()


@asynccontextmanager
async def opened(path: Path, host: Host) -> AsyncIterator[Door]:
    door = Door(path, host.greet, clock=time.monotonic)
    await door.start()
    try:
        yield door
    finally:
        await door.close()


async def heard(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_broken_law_reaches_the_loops_guard_and_its_caller_is_let_go(path: Path) -> None:
    """The peers' door forgot it, and went on as if nothing had happened."""
    broken: list[BaseException] = []
    guard_loop(broken.append)
    host = Host()
    async with opened(path, host):
        host.raises = BugError("a lease is nobody's")
        assert await heard(path) == b""
        await until(lambda: bool(broken))
        assert broken == [host.raises]
        host.raises = None
        assert await heard(path) == b"hello"


@pytest.mark.parametrize("error", [PeerError("no"), OSError("no"), TimeoutError()])
async def test_who_does_not_get_in_is_let_go_and_the_next_one_comes(
    path: Path, error: Exception
) -> None:
    host = Host()
    async with opened(path, host):
        host.raises = error
        assert await heard(path) == b""
        host.raises = None
        assert await heard(path) == b"hello"


async def test_closed_it_sends_away_who_is_being_greeted_and_leaves_no_socket(path: Path) -> None:
    host = Host()
    host.waits.clear()
    async with opened(path, host):
        asking = asyncio.create_task(heard(path))
        await until(lambda: host.greeting == 1)
    assert await asking == b""
    assert not path.exists()
