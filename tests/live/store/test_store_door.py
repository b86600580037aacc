"""Who gets into a store: workers of its model, and nobody who says or sends what may not be."""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from store_callers import (
    DEADLINE_S,
    FakeGateway,
    FakeWorker,
    answer_to,
    contents,
    raw_connection,
    reshaped,
    until,
)
from store_kit import real_store, served

from antiphon.errors import PeerError
from antiphon.store.transfer import OwnedRegion
from antiphon.types import (
    Incarnation,
    Locate,
    Put,
    PutBlock,
    StoreAsk,
    StoreOp,
    StoreRefusal,
    StoreRefused,
    StoreWatch,
    Tier,
)
from antiphon.wire import Frame, Kind, encode, pack_frame

pytestmark = pytest.mark.timeout(120)


async def test_another_layout_or_model_is_refused_while_others_are_here(folder: Path) -> None:
    """LMCache 4463: an engine changed its KV layout, and its connector copied on."""
    strangers: list[tuple[str, dict[str, Any]]] = [
        ("kv_shape", {"shape": reshaped(layout="packed")}),
        ("kv_shape", {"shape": reshaped(page_bytes=2048)}),
        ("kv_shape", {"shape": reshaped(page_tokens=32)}),
        ("kv_shape", {"shape": reshaped(block_tokens=32)}),
        ("model", {"identity": bytes(32)}),
        ("invalid", {"identity": b"short"}),
        ("invalid", {"name": "no/name"}),
    ]
    async with served(folder) as path, FakeWorker(path) as here:
        keys = await here.put_prompt()
        for reason, changes in strangers:
            with pytest.raises(PeerError, match=f"^{reason}: "):
                await FakeWorker(path, **changes).open()
        assert await here.fetch(keys) == contents(keys)


async def test_an_engine_of_another_layout_starts_anew_when_nobody_is_left(folder: Path) -> None:
    async with real_store(folder) as store, FakeGateway(store.path) as gateway:
        async with FakeWorker(store.path) as old:
            keys = await old.put_prompt()
            await gateway.until(lambda: gateway.on(Tier.HOST) == set(keys))
        await until(lambda: store.mapped() == 1)
        async with FakeWorker(store.path, shape=reshaped(layout="other")) as new:
            assert (await new.locate(keys)).blocks == ()
            await gateway.until(lambda: not gateway.held)
            assert await new.fetch(await new.put_prompt(seed=5))


async def test_a_block_larger_than_the_store_is_refused_with_the_remedy(folder: Path) -> None:
    huge = reshaped(page_bytes=2**19, pages=4)
    async with served(folder) as path:
        with pytest.raises(PeerError, match=r"kv_shape: .*--store-memory"):
            await FakeWorker(path, shape=huge).open()


async def test_a_hello_without_a_descriptor_or_with_a_wrong_one_or_many(folder: Path) -> None:
    async with real_store(folder) as store:
        async with FakeWorker(store.path):
            pass  # the store has made its memory
        worker = FakeWorker(store.path)
        hello = encode(Kind.STORE_HELLO, worker.hello)
        await until(lambda: store.mapped() == 1)
        before = store.descriptors()
        pipe, other_end = os.pipe()
        unsealed = os.memfd_create("mine", os.MFD_CLOEXEC)
        os.ftruncate(unsealed, 2**20)
        another = OwnedRegion(reshaped(page_bytes=4096))
        for descriptors, message in [
            ([], "0 file descriptors"),
            ([worker.region.fd] * 2, "2 file descriptors"),
            ([pipe], "no KV region"),
            ([unsealed], "not sealed"),
            ([another.fd], "its page_bytes is 4096"),
        ]:
            answer, got, connection = await answer_to(store.path, hello, descriptors)
            connection.close()
            assert isinstance(answer, StoreRefused)
            assert (answer.reason, got) == (StoreRefusal.INVALID, [])
            assert message in answer.message
        watch = encode(Kind.STORE_WATCH, StoreWatch(gateway=Incarnation("g")))
        answer, _, connection = await answer_to(store.path, watch, [pipe])
        connection.close()
        assert isinstance(answer, StoreRefused)
        with pytest.raises((PeerError, OSError)):  # more than the store looks at: closed, no word
            answer, _, connection = await answer_to(store.path, hello, [pipe] * 60)
            connection.close()
            if answer is None:
                raise PeerError("closed")
        for descriptor in (pipe, other_end, unsealed):
            os.close(descriptor)
        await until(lambda: store.descriptors() == before)
        await worker.open()
        worker.close()


async def test_another_version_is_told_so(folder: Path) -> None:
    async with served(folder) as path:
        frame = pack_frame(Frame(Kind.STORE_HELLO, 0, b""), version=99)
        answer, _, connection = await answer_to(path, frame)
        connection.close()
        assert isinstance(answer, StoreRefused)
        assert answer.reason is StoreRefusal.PROTOCOL


async def test_garbage_ends_its_own_stream_and_no_other(folder: Path) -> None:
    async with served(folder) as path, FakeWorker(path) as good:
        keys = await good.put_prompt()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, os.urandom(4096)):
            connection = await raw_connection(path)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, garbage)
            with suppress(ConnectionResetError):
                async with asyncio.timeout(DEADLINE_S):
                    while await loop.sock_recv(connection, 1000):
                        pass
            connection.close()
        bad = FakeWorker(path, name="mixed-1")
        await bad.open()
        bad.stream.send_frame(pack_frame(Frame(Kind.PUT, 0, b"\xc1")))
        await until(lambda: bad.ending is not None)
        bad.close()
        assert await good.fetch(keys) == contents(keys)


async def test_a_worker_that_says_what_may_not_be_is_let_go(folder: Path) -> None:
    key = b"k" * 32
    messages = [
        (Kind.PUT, Put(tenant=b"x" * 65, blocks=())),
        (Kind.PUT, Put(tenant=b"", blocks=(PutBlock(key=b"k", parent=None, pages=()),))),
        (Kind.PUT, Put(tenant=b"", blocks=(PutBlock(key=key, parent=None, pages=()),))),
        (Kind.LOCATE, Locate(tenant=b"", keys=(key,), wait_s=float("nan"))),
        (Kind.LOCATE, Locate(tenant=b"", keys=(key,), wait_s=-1.0)),
        (Kind.STORE_WATCH, StoreWatch(gateway=Incarnation("g"))),
        (Kind.STORE_ASK, StoreAsk(op=StoreOp.CLEAR)),
    ]
    async with served(folder) as path:
        for message in messages:
            worker = FakeWorker(path)
            await worker.open()
            worker.stream.send(*message)
            await until(lambda worker=worker: worker.ending is not None)
            worker.close()
        async with FakeWorker(path) as next_one:
            await next_one.put_prompt()


async def test_a_thousand_connections_leave_nothing(folder: Path) -> None:
    async with real_store(folder) as store, FakeWorker(store.path) as here:
        keys = await here.put_prompt()
        before = store.descriptors()
        hello = encode(Kind.STORE_HELLO, here.hello)

        async def visit(number: int) -> None:
            match number % 4:
                case 0:
                    (await raw_connection(store.path)).close()
                case 1:
                    connection = await raw_connection(store.path)
                    socket.send_fds(connection, [hello[:7]], [here.region.fd])
                    connection.close()
                case _:
                    _, descriptors, connection = await answer_to(
                        store.path, hello, [here.region.fd]
                    )
                    for descriptor in descriptors:
                        os.close(descriptor)
                    connection.close()

        for number in range(200):
            await visit(number)
        await until(lambda: store.descriptors() == before)
        memory = store.resident_bytes()
        for number in range(1000):
            await visit(number)
        await until(lambda: store.descriptors() == before)
        assert store.resident_bytes() < memory + 16 * 2**20
        await until(lambda: store.mapped() == 2)
        assert await here.fetch(keys) == contents(keys)


async def test_whoever_does_not_say_hello_is_sent_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even 64 silent callers keep a worker out: their time is bounded."""
    monkeypatch.setattr("antiphon.live.store.port.HELLO_TIMEOUT_S", 0.5)
    async with served(folder) as path:
        silent = [await raw_connection(path) for _ in range(70)]
        async with asyncio.timeout(DEADLINE_S):
            async with FakeWorker(path) as worker:
                await worker.put_prompt()
        for connection in silent:
            connection.close()
