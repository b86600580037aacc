"""One store's stream to another store of its pool: what that one holds, and what it is asked.

    PoolHello ──► peer ── PoolWelcome, KvDump, KvEvents … ──►
     PoolRead ──►      ── PoolLent ──► the read that waits for it

The peer may come late, go and come back: it is called again, with longer and longer waits, and
meanwhile its blocks are misses. Each stream begins with all that the peer holds.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from antiphon.core.reconnect_wait import ReconnectWait
from antiphon.core.said_of_kv import POOLED_TIERS, wrong_in_kv
from antiphon.core.store_pool import RAW, PoolNode
from antiphon.core.store_pool.peer_address import PeerAddress
from antiphon.errors import PeerError, UsageError
from antiphon.live.failure import why
from antiphon.live.kv_journal import KvNews
from antiphon.live.unread import Unread
from antiphon.types import (
    STORE,
    BlockKey,
    ClusterConfig,
    Forget,
    KvReplay,
    LeaseId,
    PlacedBlock,
    PoolClear,
    PoolHello,
    PoolLent,
    PoolPlace,
    PoolRead,
    PoolWelcome,
    Release,
    Seconds,
    StoreAnswer,
    StoreRefused,
)
from antiphon.types.store_pool_config import LEVELS
from antiphon.wire import (
    FROM_POOLED_STORE,
    Calls,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    QuietLog,
    decode,
)

from .pool_dial import Dial

HELLO_TIMEOUT_S = 5.0
LONGEST_READ_S = 60.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_MOST_PROFILE_ID_BYTES = 64

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who hears what becomes of a link."""

    def hello(self) -> PoolHello:
        """What to say first."""
        ...

    def came(self, link: "PoolLink", node: PoolNode, welcome: PoolWelcome) -> None:
        """The peer is there. Raises `PeerError` if it can't be read from."""
        ...

    def news(self, link: "PoolLink", node: PoolNode, news: KvNews) -> KvReplay | None:
        """It says what it has. Returns what it is to say again."""
        ...

    def left(self, link: "PoolLink", node: PoolNode) -> None:
        """It is there no more: what was asked of it has failed."""
        ...


@dataclass(slots=True)
class ReadCounts:
    """What came and was good; `failed` calls brought less than was lent, or nothing in time."""

    blocks: int = 0
    bytes: int = 0
    failed: int = 0


class PoolLink:
    """Of one peer, for as long as `run` runs."""

    def __init__(
        self,
        address: PeerAddress,
        listener: Listener,
        dial: Dial,
        config: ClusterConfig,
        *,
        clock: Callable[[], Seconds],
    ) -> None:
        self.address = address
        self.connections = 0
        """How often it came."""
        self.problem = ""
        """Why it is not there, if that is known."""
        self.read = ReadCounts()
        """What was read from it, in all its lives."""
        self._listener = listener
        self._dial = dial
        self._config = config
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._stream: FrameStream | None = None
        self._calls: Calls | None = None

    @property
    def present(self) -> bool:
        """Whether the peer is there now, as far as is known."""
        return self._calls is not None

    async def run(self) -> None:
        """Keep the stream until cancelled."""
        waits = ReconnectWait(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            before = self.connections
            try:
                await self._live()
            except (OSError, TimeoutError) as error:
                self._away("does not answer", why(error))
            except (PeerError, UsageError) as error:
                self._away("is not in the pool", str(error))
            await asyncio.sleep(waits.after(came=self.connections > before))

    def _away(self, what: str, problem: str) -> None:
        self.problem = f"it {what}: {problem}"
        self._quiet.trouble("the store %s %s: %s", self.address, what, problem)

    # ── what it is asked ─────────────────────────────────────────────────────────────────────

    async def borrow(
        self,
        blocks: Mapping[BlockKey, int],
        wait_s: Seconds,
        timeout_s: Seconds,
        level: str = RAW,
    ) -> PoolLent:
        """The pages of those of the blocks that the peer has, encoded at `level` where that can be;
        the numbers say how many are before each in its chain. Raises `PeerError`. What is lent when
        nobody waits for it any more is given back."""
        if self._calls is None:
            raise PeerError(f"the store {self.address} is not there")
        positions = () if level == RAW else tuple(blocks.values())
        read = PoolRead(keys=tuple(blocks), wait_s=wait_s, level=level, positions=positions)
        answer = self._calls.ask(Kind.POOL_READ, read, (Kind.POOL_LENT,))
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            answer.add_done_callback(self._lent_in_vain)
            raise PeerError(
                f"the store {self.address} did not answer within {timeout_s:.2f} s"
            ) from None
        except asyncio.CancelledError:
            answer.add_done_callback(self._lent_in_vain)
            raise

    def _lent_in_vain(self, answer: asyncio.Future[PoolLent]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        if (lease := answer.result().lease) is not None:
            self.release(lease)

    def release(self, lease: LeaseId) -> None:
        """Nobody reads under it any more. If it gets lost the lease runs out by itself."""
        self._say(Kind.RELEASE, Release(owner=STORE, lease=lease))

    def forget(self, keys: Sequence[BlockKey]) -> None:
        """What computed these has failed."""
        self._say(Kind.FORGET, Forget(tuple(keys)))

    async def clear(self, clear: PoolClear) -> StoreAnswer:
        """Have blocks forgotten there. Raises `PeerError`."""
        if self._calls is None:
            raise PeerError(f"the store {self.address} is not there")
        return await self._calls.call(Kind.POOL_CLEAR, clear, (Kind.STORE_ANSWER,))

    async def place(self, blocks: Sequence[PlacedBlock]) -> None:
        """The peer is home to these. Waits while it is slow to read; if it goes, so be it."""
        stream = self._stream
        with suppress(PeerError):
            if stream is not None:
                await stream.room()
                stream.send(Kind.POOL_PLACE, PoolPlace(tuple(blocks)))

    def _say(self, kind: Kind, message: object) -> None:
        with suppress(PeerError):
            if self._stream is not None:
                self._stream.send(kind, message)

    # ── one stream ───────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        """From connecting to the end of the stream; raises what it could not begin for."""
        stream = FrameStream(FROM_POOLED_STORE, clock=self._clock)
        calls = Calls(stream, f"the store {self.address.name}", timeout_s=LONGEST_READ_S)
        unread = Unread(stream)
        stream.on_frame = lambda frame: self._heard(frame, calls, unread)
        stream.on_end = lambda ending: self._over(ending, calls, unread)
        try:
            await self._dial(stream, self.address, HELLO_TIMEOUT_S)
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                stream.send(Kind.POOL_HELLO, self._listener.hello())
                first = await unread.next()
            if first is None:
                raise PeerError(stream.ending.reason if stream.ending else "it said nothing")
            match decode(first):
                case PoolWelcome() as welcome:
                    await self._read(stream, calls, unread, welcome)
                case StoreRefused(message=message):
                    raise PeerError(f"it refuses this store: {message}")
                case _:
                    raise FrameError("it said something else than welcome")
        finally:
            stream.end("the store leaves this pool")
            await stream.wait_closed()

    async def _read(
        self, stream: FrameStream, calls: Calls, unread: Unread, welcome: PoolWelcome
    ) -> None:
        if welcome.name != self.address.name:
            raise PeerError(
                f"it is called {welcome.name!r:.40}: name it so in store_pool.peers (--peer)"
            )
        if welcome.blocks < 1:
            raise FrameError("it says that it has room for no block")
        if welcome.level not in LEVELS or len(welcome.profile) > _MOST_PROFILE_ID_BYTES:
            raise FrameError(f"it says that it is set to {welcome.level!r:.40}, which is no level")
        node = PoolNode(name=welcome.name, incarnation=welcome.incarnation, weight=welcome.blocks)
        self._listener.came(self, node, welcome)
        try:
            self._begin(stream, calls)
            while (frame := await unread.next()) is not None:
                self._take(stream, node, decode(frame))
                await asyncio.sleep(0)  # a dump has many parts, and others want to be served
        finally:
            self._stream = self._calls = None
            self.problem = stream.ending.reason if stream.ending else ""
            self._listener.left(self, node)

    def _begin(self, stream: FrameStream, calls: Calls) -> None:
        heartbeat_s, lost_after_s = self._config.heartbeat_s, self._config.lost_after_s
        self._stream, self._calls = stream, calls
        self.connections += 1
        self.problem = ""
        self._quiet.recovered()
        stream.beat(heartbeat_s, lost_after_s, lambda: (Kind.HEARTBEAT, None))

    def _take(self, stream: FrameStream, node: PoolNode, said: KvNews | object) -> None:
        if isinstance(said, PoolWelcome | StoreRefused):
            raise FrameError("it says twice whether we are welcome")
        news: KvNews = said  # type: ignore[assignment]
        if problem := wrong_in_kv(news, POOLED_TIERS):
            raise FrameError(f"it says what can't be: {problem}")
        wish = self._listener.news(self, node, news)
        if wish is not None:
            stream.send(Kind.KV_REPLAY, wish)

    @staticmethod
    def _heard(frame: Frame, calls: Calls, unread: Unread) -> None:
        match frame.kind:
            case Kind.HEARTBEAT:
                pass
            case Kind.POOL_LENT | Kind.STORE_ANSWER:
                calls.answered(frame)
            case _:
                unread.put(frame)

    @staticmethod
    def _over(ending: Ending, calls: Calls, unread: Unread) -> None:
        if ending.stalled:
            unread.forget()
        calls.fail(ending.reason)
        unread.wake()


async def clear_all(links: Sequence[PoolLink], wish: PoolClear) -> tuple[int, Sequence[str]]:
    """Have blocks forgotten by all of these; how many it were, and who could not be asked."""
    answers = await asyncio.gather(*(link.clear(wish) for link in links), return_exceptions=True)
    count, silent = 0, list[str]()
    for link, answer in zip(links, answers, strict=True):
        match answer:
            case StoreAnswer(blocks=blocks, problem=""):
                count += blocks
            case StoreAnswer() | PeerError():
                silent.append(str(link.address))
            case BaseException():
                raise answer
    return count, silent
