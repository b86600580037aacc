"""A KV store over a real socket, with real memory, that does what the test wants.

By itself it is an honest store without bounds: it copies what is put, and finds it again.
"""

import asyncio
import gc
import itertools
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from link_kit import until

from antiphon.live.descriptors import first_frame, send_all_at_once
from antiphon.live.socket_folder import close_listener, listen
from antiphon.live.store_client import StoreClient
from antiphon.live.store_session import StoreSession
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import (
    BlockKey,
    Forget,
    Incarnation,
    KvShape,
    LeaseId,
    Locate,
    Located,
    OfferedPage,
    PagePull,
    Put,
    Release,
    StoreHello,
    StoreRefused,
    StoreWelcome,
    WorkerId,
)
from antiphon.wire import (
    FROM_STRANGE_CALLERS,
    TO_STORE,
    Ending,
    Frame,
    FrameStream,
    Kind,
    decode,
    encode,
)

Pages = tuple[OfferedPage, ...]


@dataclass(eq=False)
class Caller:
    """A worker that is in."""

    hello: StoreHello
    stream: FrameStream
    memory: MappedRegion


class ScriptedStore:
    """Use as `async with ScriptedStore(folder, shape) as store`."""

    def __init__(self, folder: Path, shape: KvShape, *, blocks: int = 64) -> None:
        self.path = folder / "store.sock"
        self._per_block = shape.block_tokens // shape.page_tokens
        self.shape = replace(shape, pages=blocks * self._per_block)
        self.region = OwnedRegion(self.shape)
        self.hellos: list[StoreHello] = []
        self.callers: list[Caller] = []
        self.puts: list[Put] = []
        self.forgotten: list[BlockKey] = []
        self.asked: list[Locate] = []
        self.released: list[LeaseId] = []
        self.kept: dict[BlockKey, Pages] = {}
        self.refuse: StoreRefused | None = None
        self.welcome: Callable[[socket.socket], None] | None = self.say_welcome
        """None: it never answers a hello."""
        self.answer: Callable[[Locate], Located | None] = self.located
        """None: this one is not answered."""
        self.beat: tuple[float, float] | None = (0.05, 20.0)
        self._answering = asyncio.Event()
        self._unanswered: list[tuple[FrameStream, int]] = []
        self._leases = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._close_listener: Callable[[], None] = lambda: None

    # ── what it does by itself ───────────────────────────────────────────────────────────────

    def say_welcome(self, connection: socket.socket, *, fds: list[int] | None = None) -> None:
        welcome = StoreWelcome(store=Incarnation("s-1"), kv=self.shape, lease_ttl_s=5.0)
        data = encode(Kind.STORE_WELCOME, welcome)
        send_all_at_once(connection, data, [self.region.fd] if fds is None else fds)

    def answer_hellos(self) -> None:
        """Welcome all from now on, and those that wait."""
        self.welcome = self.say_welcome
        self._answering.set()

    def located(self, locate: Locate) -> Located:
        found = tuple(
            self.kept[key] for key in itertools.takewhile(self.kept.__contains__, locate.keys)
        )
        lease = LeaseId(f"lease-{next(self._leases)}") if found else None
        return Located(lease=lease, ttl_s=5.0, blocks=found)

    def keep(self, key: BlockKey, content: bytes) -> Pages:
        """Have a block, as if somebody had put it."""
        targets = self._next_pages()
        self.region.begin_write(targets)
        size = self.shape.page_bytes
        for number, page in enumerate(targets):
            pages = self.region.content.reshape(-1, size)
            pages[page] = np.frombuffer(content, np.uint8, size, number * size)
        self.kept[key] = self.region.seal(targets)
        return self.kept[key]

    def _next_pages(self) -> list[int]:
        start = len(self.kept) * self._per_block
        return list(range(start, start + self._per_block))

    def _copy(self, put: Put, memory: MappedRegion) -> None:
        for block in put.blocks:
            if block.key in self.kept:
                continue
            targets = self._next_pages()
            if all(memory.pull([*map(PagePull, block.pages, targets)])):
                self.kept[block.key] = self.region.seal(targets)

    def say_late(self, located: Located) -> None:
        """Answer what was not answered."""
        for stream, number in self._unanswered:
            stream.send(Kind.LOCATED, located, number)
        self._unanswered.clear()

    # ── its door ─────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        listener = listen(self.path)
        inode = self.path.lstat().st_ino
        self._close_listener = partial(close_listener, listener, self.path, inode)
        self._spawn(self._accept(listener))

    async def close(self) -> None:
        """Die: streams end, the memory stays with those who have mapped it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_listener()
        self._close_listener = lambda: None
        for caller in self.callers:
            caller.stream.end("the store is gone")
            caller.memory.close()

    async def __aenter__(self) -> "ScriptedStore":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        self.region.close()
        del self.region

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            self._spawn(self._greet(connection))

    async def _greet(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            frame = await first_frame(connection, FROM_STRANGE_CALLERS, descriptors)
            if frame is None:
                connection.close()
                return
            hello = decode(frame)
            self.hellos.append(hello)
            if self.refuse is not None:
                send_all_at_once(connection, encode(Kind.STORE_REFUSED, self.refuse), [])
                connection.close()
                return
            if self.welcome is None:
                await self._answering.wait()
            if self.welcome is None:
                return
            (descriptor,) = descriptors
            memory = MappedRegion(descriptor, self.region)
            try:
                self.welcome(connection)
            except OSError:  # the worker has gone: its traceback would keep the memory mapped
                memory.close()
                raise
            if connection.fileno() < 0:
                memory.close()
                return
            stream = FrameStream(TO_STORE, clock=time.monotonic)
            caller = Caller(hello, stream, memory)
            stream.on_frame = partial(self._heard, caller)
            stream.on_end = partial(self._left, caller)
            self.callers.append(caller)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: stream, connection)
            if self.beat is not None:
                stream.beat(*self.beat, lambda: (Kind.HEARTBEAT, None))
        except BaseException:
            connection.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _left(self, caller: Caller, _: Ending) -> None:
        self.callers.remove(caller)
        caller.memory.close()

    def _heard(self, caller: Caller, frame: Frame) -> None:
        if frame.kind == Kind.HEARTBEAT:
            return
        match decode(frame):
            case Put() as put:
                self.puts.append(put)
                self._copy(put, caller.memory)
            case Forget(keys=keys):
                self.forgotten += keys
            case Locate() as locate:
                self.asked.append(locate)
                answer = self.answer(locate)
                if answer is None:
                    self._unanswered.append((caller.stream, frame.number))
                elif caller.stream.ending is None:
                    caller.stream.send(Kind.LOCATED, answer, frame.number)
            case Release(lease=lease):
                self.released.append(lease)


def hello(region: OwnedRegion, life: str = "w0-1") -> StoreHello:
    return StoreHello(
        worker=WorkerId("w0"),
        incarnation=Incarnation(life),
        kv=region.shape,
        identity=b"\x07" * 32,
        numerics="script",
    )


def client(store: Path, region: OwnedRegion, threads, **changes) -> StoreClient:
    settings = {"clock": time.monotonic, "heartbeat_s": 0.05, "lost_after_s": 20.0}
    who = changes.pop("hello", lambda: hello(region))
    return StoreClient(store, who, region, threads, **{**settings, **changes})


def open_descriptors() -> int:
    """Each map of a region has one, until it is collected."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


async def until_closed(before: int) -> None:
    """Return when no more descriptors are open than `before`. Else the error tells which."""
    try:
        await until(lambda: open_descriptors() <= before)
    except TimeoutError:
        left = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        raise AssertionError(f"more than {before} are open: {sorted(left)}") from None


@asynccontextmanager
async def using(one: StoreClient) -> AsyncIterator[StoreClient]:
    one.start()
    try:
        yield one
    finally:
        await one.close()


async def session_of(one: StoreClient) -> StoreSession:
    await until(lambda: one.session() is not None)
    session = one.session()
    assert session is not None
    return session


def mapped() -> int:
    gc.collect()  # regions of earlier tests
    return Path("/proc/self/maps").read_text().count("antiphon-kv")


def page(region: OwnedRegion, number: int) -> np.ndarray:
    return region.content.reshape(region.shape.pages, -1)[number]


async def copied_out(session: StoreSession, store: ScriptedStore, region: OwnedRegion) -> None:
    """What the store has can be read."""
    content = os.urandom(4 * region.shape.page_bytes)
    block = store.keep(os.urandom(32), content)
    pulls = [PagePull(source, target) for source, target in zip(block, (3, 9, 1, 5), strict=True)]
    done = await asyncio.wrap_future(session.copy(pulls, lambda: False))
    assert done.good == (True,) * 4 and not done.missed
    assert b"".join(page(region, number).tobytes() for number in (3, 9, 1, 5)) == content
