"""Whatever one side says, the other goes on: with its other peers, and with the next stream."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_kit import WELCOME, Door, PuppetWorker, port, request, until, worker_info

from antiphon.testing.typed_values import values
from antiphon.types import (
    Abort,
    Aborted,
    Admitted,
    Adopt,
    Dispatch,
    EventBatch,
    GrantTo,
    Hello,
    LeaseHeld,
    Offer,
    Release,
    Renew,
    RoleChanged,
    TokenGenerated,
    WorkerId,
    WorkerView,
)
from antiphon.wire import Kind, encode, pack_events

pytestmark = pytest.mark.timeout(120)

FROM_WORKER: dict[Kind, Any] = {
    Kind.REPORT: WorkerView,
    Kind.EVENTS: EventBatch,
    Kind.ADMITTED: Admitted,
    Kind.ABORTED: Aborted,
    Kind.LEASE_HELD: LeaseHeld,
    Kind.DONE: None,
}
FROM_GATEWAY: dict[Kind, Any] = {
    Kind.HEARTBEAT: None,
    Kind.DISPATCH: Dispatch,
    Kind.ADOPT: Adopt,
    Kind.ABORT: Abort,
    Kind.GRANT: GrantTo,
    Kind.RENEW: Renew,
    Kind.RELEASE: Release,
    Kind.SET_ROLE: RoleChanged,
}


batches = st.one_of(
    values(EventBatch),
    st.lists(st.one_of(values(TokenGenerated), values(Offer)), max_size=4).map(pack_events),
)


def addressed(message: object) -> object:
    """To the worker that hears it, lest it looks no further."""
    match message:
        case Dispatch() | Adopt() | Abort() | RoleChanged():
            return replace(message, worker=WorkerId("w0"))
        case Renew() | Release():
            return replace(message, owner=WorkerId("w0"))
    return message


@st.composite
def talk(draw: st.DrawFn, kinds: dict[Kind, Any]) -> bytes:
    """Messages that decode, with a little damage now and then."""
    said = bytearray()
    for kind in draw(st.lists(st.sampled_from(list(kinds)), max_size=5)):
        message = draw(batches if kind is Kind.EVENTS else values(kinds[kind]))
        said += encode(kind, addressed(message), draw(st.integers(0, 5)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(said)))
        said[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=6))
    return bytes(said)


class Complaints:
    """What the loop was told that nobody caught."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: self.heard.append(what))


@asynccontextmanager
async def private_folder():
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(deadline=None, max_examples=100)
@given(said=talk(FROM_WORKER))
def test_no_worker_harms_a_gateway(said: bytes) -> None:
    async def run() -> None:
        complaints = Complaints()
        async with private_folder() as folder, Door(folder) as door:
            healthy = PuppetWorker(worker_info("w0"))
            async with port(healthy, door.path):
                await door.link(0)
                info = worker_info("w1")
                _, writer = await asyncio.open_unix_connection(door.path)
                writer.write(encode(Kind.HELLO, Hello(info, healthy.view())) + said)
                strange = await door.link(1)
                reading = asyncio.create_task(read(strange))
                adding = asyncio.create_task(strange.add(request("strange")))
                await asyncio.sleep(0)
                writer.write_eof()
                await until(lambda: "w1" not in door.socket.present)
                await asyncio.gather(reading, adding, return_exceptions=True)
                writer.close()
                assert isinstance(await door.links[0].add(request()), Admitted)
        assert complaints.heard == []

    asyncio.run(run())


async def read(link) -> None:
    async for _ in link.events():
        pass


@settings(deadline=None, max_examples=100)
@given(said=talk(FROM_GATEWAY))
def test_no_gateway_harms_a_worker(said: bytes) -> None:
    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(encode(Kind.WELCOME, WELCOME) + said)
        writer.write_eof()
        await reader.read()
        writer.close()

    async def run() -> None:
        complaints = Complaints()
        async with private_folder() as folder:
            path = folder / "gateway.sock"
            worker = PuppetWorker(worker_info())
            server = await asyncio.start_unix_server(strange, path)
            async with port(worker, path) as serving:
                await until(lambda: bool(serving.lives.left))
                server.close()
                path.unlink()
                async with Door(folder) as door:
                    link = await door.link()
                    assert worker.running == {}
                    assert isinstance(await link.add(request()), Admitted)
                assert not serving.run.done()
        assert complaints.heard == []

    asyncio.run(run())
