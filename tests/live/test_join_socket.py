"""Who gets in, who does not and hears why, and what a stranger can't do."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from link_kit import (
    IDENTITY,
    KV,
    Door,
    PuppetWorker,
    port,
    request,
    until,
    worker_info,
)

from antiphon.errors import PeerError, UsageError
from antiphon.live import join_socket
from antiphon.types import (
    Admitted,
    Hello,
    Incarnation,
    JoinRefusal,
    JoinRefused,
    WorkerId,
    WorkerInfo,
)
from antiphon.wire import (
    TO_GATEWAY,
    TO_WORKER,
    Frame,
    FrameReader,
    FrameStream,
    Kind,
    decode,
    encode,
    pack_frame,
)
from antiphon.wire.frame import HEADER_BYTES

pytestmark = pytest.mark.timeout(60)


def hello(info: WorkerInfo) -> bytes:
    return encode(Kind.HELLO, Hello(info, PuppetWorker(info).view()))


def report(info: WorkerInfo) -> bytes:
    """What a worker answers its welcome with."""
    return encode(Kind.REPORT, PuppetWorker(info).view())


async def test_who_does_not_answer_its_welcome_has_not_joined(folder: Path) -> None:
    """A gateway that stood still finds hellos of connections that were given up long ago."""
    async with Door(folder) as door:
        gone = await call(door, hello(worker_info("gone")))
        gone.writer.close()
        there = await call(door, hello(worker_info("there")) + report(worker_info("there")))
        assert (await door.link(0)).info.id == "there"
        await until(lambda: list(door.socket.present) == ["there"])
        assert len(door.links) == 1
        there.writer.close()


class Caller:
    """A bare connection to the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def rest(self) -> bytes:
        """All that comes until the end."""
        try:
            return await asyncio.wait_for(self.reader.read(), 10)
        except ConnectionResetError:
            return b""

    async def frame(self) -> Frame:
        frames = FrameReader(TO_WORKER)
        while True:
            data = await asyncio.wait_for(self.reader.read(65536), 10)
            assert data, "the connection was closed without a word"
            for frame in frames.feed(data):
                return frame


async def call(door: Door, data: bytes) -> Caller:
    caller = Caller(*await asyncio.open_unix_connection(door.path))
    caller.writer.write(data)
    return caller


async def refusal(door: Door, info: WorkerInfo) -> JoinRefused:
    caller = await call(door, hello(info))
    refused = decode(await caller.frame())
    assert isinstance(refused, JoinRefused)
    assert await caller.rest() == b"", "a refused connection must be closed"
    caller.writer.close()
    return refused


async def test_the_socket_is_for_this_user_alone(folder: Path) -> None:
    async with Door(folder / "made") as door:
        assert door.path.parent.stat().st_mode & 0o777 == 0o700
        assert door.path.stat().st_mode & 0o777 == 0o600
    assert not door.path.exists()


async def test_a_folder_that_others_can_enter_is_not_used(folder: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(UsageError, match="chmod 700"):
        await Door(folder).socket.start()
    folder.chmod(0o700)


async def test_a_link_to_a_folder_is_not_used(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o700)
    (folder / "link").symlink_to(folder / "real")
    with pytest.raises(UsageError, match="no folder"):
        await Door(folder / "link").socket.start()


async def test_a_second_gateway_is_told(folder: Path) -> None:
    async with Door(folder):
        with pytest.raises(UsageError, match="another process listens"):
            await Door(folder).socket.start()


async def test_what_a_dead_gateway_left_is_replaced(folder: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "gateway.sock"))
    dead.close()
    async with Door(folder) as door:
        assert (await call(door, b"")).writer is not None


async def test_a_path_too_long_is_named(folder: Path) -> None:
    with pytest.raises(UsageError, match="longer than 107 bytes"):
        await Door(folder / ("x" * 100)).socket.start()


async def test_workers_hear_why_they_are_refused(folder: Path) -> None:
    fits = worker_info("w1")
    async with Door(folder) as door, port(PuppetWorker(worker_info("w0")), door.path):
        await door.link()
        other_model = replace(fits, model=replace(fits.model, identity=b"x" * 32))
        assert (await refusal(door, other_model)).reason is JoinRefusal.MODEL
        assert (
            await refusal(door, replace(fits, kv=replace(KV, page_tokens=32)))
        ).reason is JoinRefusal.KV_SHAPE
        assert (await refusal(door, worker_info("w0", "life-9"))).reason is JoinRefusal.LIVE
        assert (
            await refusal(door, replace(fits, id=WorkerId("a b")))
        ).reason is JoinRefusal.INVALID
        assert list(door.socket.present) == ["w0"]


async def test_unequal_numerics_may_join(folder: Path) -> None:
    info = worker_info("w1")
    other = replace(info, model=replace(info.model, numerics="gpu"))
    async with Door(folder) as door, port(PuppetWorker(worker_info("w0")), door.path):
        await door.link(0)
        async with port(PuppetWorker(other), door.path):
            assert (await door.link(1)).info.model.numerics == "gpu"


async def test_a_worker_that_can_never_fit_gives_up_with_the_reason(folder: Path) -> None:
    info = worker_info()
    wrong = replace(info, model=replace(info.model, identity=b"x" * 32))
    async with Door(folder) as door, port(PuppetWorker(wrong), door.path) as serving:
        with pytest.raises(UsageError, match=f"serves the model {IDENTITY.hex()[:16]}"):
            await asyncio.wait_for(serving.run, 10)


async def test_a_name_is_free_when_its_stream_is_over(folder: Path) -> None:
    """A new life does not push out the old one; it waits until that one's stream is over."""
    async with Door(folder) as door:
        first = PuppetWorker(worker_info(life="old"))
        second = PuppetWorker(worker_info(life="new"))
        async with port(first, door.path):
            await door.link()
            successor = asyncio.create_task(enter(second, door))
            assert (await refusal(door, worker_info(life="x"))).transient
            assert door.socket.present[WorkerId("w0")].incarnation == "old"
        assert await asyncio.wait_for(successor, 10) == Incarnation("new")


async def enter(worker: PuppetWorker, door: Door) -> Incarnation:
    async with port(worker, door.path):
        return (await door.link(1)).info.incarnation


async def test_a_full_cluster_takes_the_next_when_one_has_left(folder: Path) -> None:
    async with Door(folder, max_workers=1) as door:
        async with port(PuppetWorker(worker_info("w0")), door.path):
            await door.link()
            assert (await refusal(door, worker_info("w1"))).reason is JoinRefusal.FULL
            waiting = asyncio.create_task(enter(PuppetWorker(worker_info("w1")), door))
        await asyncio.wait_for(waiting, 10)


async def test_a_life_that_was_given_up_joins_as_another(folder: Path) -> None:
    def judge(info: WorkerInfo, present: object) -> JoinRefused | None:
        if info.incarnation == "life-1":
            return JoinRefused(reason=JoinRefusal.OVER, message="this life is over")
        return None

    async with Door(folder, judge=judge) as door, port(PuppetWorker(worker_info()), door.path):
        assert (await door.link()).info.incarnation == "life-2"


async def test_another_version_hears_of_it_and_gives_up(folder: Path, monkeypatch) -> None:
    async with Door(folder) as door:
        caller = await call(door, pack_frame(Frame(Kind.HELLO, 0, b"from the future"), version=9))
        refused = decode(await caller.frame())
        assert refused.reason is JoinRefusal.PROTOCOL
        assert "version 9" in refused.message
        caller.writer.close()


async def test_a_gateway_of_another_version_ends_the_worker(folder: Path) -> None:
    async def future(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(pack_frame(Frame(Kind.JOIN_REFUSED, 0, b"?"), version=9))
        writer.close()

    path = folder / "gateway.sock"
    server = await asyncio.start_unix_server(future, path)
    async with server, port(PuppetWorker(worker_info()), path) as serving:
        with pytest.raises(UsageError, match="version 9"):
            await asyncio.wait_for(serving.run, 10)


async def test_another_word_than_hello_ends_it_at_once(folder: Path, caplog) -> None:
    async with Door(folder) as door:
        view = PuppetWorker(worker_info()).view()
        for data in (
            encode(Kind.REPORT, view),
            b"GET / HTTP/1.1\r\n\r\n",
            pack_frame(Frame(Kind.HELLO, 0, b"\x80")),
            encode(Kind.HEARTBEAT, None),
        ):
            caller = await call(door, data)
            await caller.rest()
            caller.writer.close()
    assert len([line for line in caplog.messages if "did not join" in line]) == 4
    assert door.links == []


@pytest.mark.parametrize("kind", sorted(set(TO_GATEWAY) - {Kind.HELLO}))
async def test_before_hello_nothing_else_is_even_begun_to_be_read(folder: Path, kind: int) -> None:
    """The header is enough: 64 strangers could make a gateway keep 32 MiB of events each."""
    async with Door(folder) as door:
        caller = await call(door, pack_frame(Frame(kind, 0, b"x"))[:HEADER_BYTES])
        assert await caller.rest() == b""
        caller.writer.close()
    assert door.links == []


async def test_what_follows_a_hello_at_once_is_heard(folder: Path) -> None:
    """From the very next frame on, a worker that was taken in may say what workers say."""
    info = worker_info()
    view = replace(PuppetWorker(info).view(), waiting=7)
    async with Door(folder) as door:
        caller = await call(door, hello(info) + encode(Kind.REPORT, view))
        link = await door.link()
        await until(lambda: link.view().waiting == 7)
        caller.writer.close()


async def test_hello_is_said_once(folder: Path) -> None:
    async with Door(folder) as door:
        again = hello(worker_info())
        caller = await call(door, again + report(worker_info()) + again)
        link = await door.link()
        with pytest.raises(PeerError, match="hello twice"):
            await anext(link.events())
        caller.writer.close()


async def test_strangers_have_little_time_and_few_places(folder: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(join_socket, "JOIN_TIMEOUT_S", 0.3)
    monkeypatch.setattr(join_socket, "MAX_STRANGERS", 3)
    async with Door(folder) as door:
        callers = [await call(door, b"\0") for _ in range(6)]
        for caller in callers:
            assert await caller.rest() == b""
            caller.writer.close()
        async with port(PuppetWorker(worker_info()), door.path):
            assert isinstance(await (await door.link()).add(request()), Admitted)
    assert sum("hello within 0.3 s" in line for line in caplog.messages) == 3


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_connections_leave_nothing_behind(folder: Path) -> None:
    async with Door(folder) as door:
        before = open_descriptors()
        for number in range(30):
            caller = await call(door, b"\xff" * 20 if number % 2 else hello(worker_info("a b")))
            await caller.rest()
            caller.writer.close()
            await caller.writer.wait_closed()
        for number in range(10):
            async with port(PuppetWorker(worker_info()), door.path):
                await door.link(number)
            await until(lambda: not door.socket.present)
        await until(lambda: open_descriptors() <= before)
        assert not door.socket._strangers


@pytest.mark.parametrize("passes", [*range(12), 20, 40])
async def test_a_port_ends_whenever_it_is_told_to(folder: Path, passes: int) -> None:
    """Also while it joins, and when the welcome comes just then."""
    async with Door(folder) as door:
        async with asyncio.timeout(10), port(PuppetWorker(worker_info()), door.path):
            for _ in range(passes):
                await asyncio.sleep(0)
        await until(lambda: not door.socket.present)


def test_it_works_on_the_servers_loop(folder: Path) -> None:
    async def flow() -> None:
        async with Door(folder) as door:
            async with port(PuppetWorker(worker_info()), door.path):
                assert isinstance(await (await door.link()).add(request()), Admitted)
                assert (await refusal(door, worker_info("w0", "x"))).reason is JoinRefusal.LIVE
            await until(lambda: not door.socket.present)
        assert not door.path.exists()

    for _ in range(2):
        uvloop.run(flow())


@pytest.mark.parametrize("info", [worker_info(), worker_info("a b")], ids=["welcome", "refused"])
async def test_who_goes_away_while_it_comes_in_is_no_accident(
    folder: Path, monkeypatch, info: WorkerInfo
) -> None:
    """The answer to its hello can't be sent: no traceback for that, and no worker."""

    def send(stream: FrameStream, *_: object) -> None:
        stream.end("the connection broke")
        raise PeerError("the connection broke")

    accidents: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: accidents.append(what))
    monkeypatch.setattr(FrameStream, "send", send)
    async with Door(folder) as door:
        caller = await call(door, hello(info))
        assert await caller.rest() == b""
        caller.writer.close()
        assert door.links == []
        assert door.socket.present == {}
        assert not door.socket._strangers
    assert accidents == []


async def test_counts_that_can_not_be_are_refused(folder: Path) -> None:
    info = worker_info()
    view = replace(PuppetWorker(info).view(), total_pages=0, free_pages=0)
    async with Door(folder) as door:
        caller = await call(door, encode(Kind.HELLO, Hello(info, view)))
        refused = decode(await caller.frame())
        assert refused.reason is JoinRefusal.INVALID
        assert "total_pages is 0" in refused.message
        caller.writer.close()
