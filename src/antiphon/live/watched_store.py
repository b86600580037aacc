"""A KV store, as a gateway sees it: which blocks it holds, how it does, and what it is asked.

    StoreWatch ──► store ── KvDump, KvEvents ──► `on_news`, which may want some of it again
      StoreAsk ──►       ── StoreAnswer ──► the call that waits for it

That of the gateway's own host is reached over a Unix socket, those of other hosts over TLS, at
their place in the pool of stores. A store may come late, go and come back: the gateway tries again,
with longer and longer waits, and meanwhile it serves without one. A stream to a store begins with
all that it holds, so each is taken for a life of its own.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from antiphon.core.reconnect_wait import ReconnectWait
from antiphon.core.said_of_kv import STORES_TIERS, wrong_in_answer, wrong_in_kv
from antiphon.errors import PeerError, UsageError
from antiphon.types import (
    ClusterConfig,
    Incarnation,
    KvReplay,
    PoolPeer,
    Seconds,
    StoreAnswer,
    StoreAsk,
    StoreOp,
    StoreRefused,
    StoreWatch,
    TierStats,
)
from antiphon.wire import (
    FROM_STORE,
    Calls,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    QuietLog,
    decode,
)

from .kv_journal import KvNews
from .network import Address, dial
from .unread import Unread

CONNECT_TIMEOUT_S = 5.0
LONGEST_ASK_S = 86_400.0
"""Whoever asks says how long to wait; nobody waits longer."""
STATS_EVERY_S = 1.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0

_log = logging.getLogger(__name__)


class WatchedStore:
    """The store that listens at `address`, if one does, for as long as `run` runs.

    `on_news` gets what it holds and what changes, under a name of this stream's own, and returns
    what it wants to hear again. `on_left` is called when all of that is void, `on_came` when it
    has come, and `on_stats` when there are new counts.
    """

    def __init__(  # noqa: PLR0913  where it is, and who hears of what
        self,
        address: Address,
        gateway: Incarnation,
        config: ClusterConfig,
        *,
        on_news: Callable[[Incarnation, KvNews], KvReplay | None],
        on_left: Callable[[], None],
        on_came: Callable[[], None] = lambda: None,
        on_stats: Callable[[tuple[TierStats, ...]], None] = lambda stats: None,
        clock: Callable[[], Seconds],
    ) -> None:
        self.address = address
        """Where it listens."""
        own = isinstance(address, Path)
        self._name = "the KV store" if own else f"the KV store at {address}"
        self._gateway = gateway
        self._config = config
        self._on_news = on_news
        self._on_left = on_left
        self._on_came = on_came
        self._on_stats = on_stats
        self._clock = clock
        self._quiet = QuietLog(_log, clock)
        self._stream: FrameStream | None = None
        self._calls: Calls | None = None
        self.stats: tuple[TierStats, ...] = ()
        """What it last said of its tiers; none while it is away."""
        self.pool: tuple[PoolPeer, ...] = ()
        """The other stores of its pool, as it sees them; none while it is away."""
        self.connections = 0
        """How often it came."""

    @property
    def present(self) -> bool:
        """Whether it is there now, as far as is known."""
        return self._calls is not None

    @property
    def pid(self) -> int | None:
        """Its process; None: it is away, or can't be seen from here."""
        return self._stream.peer_pid if self._stream is not None else None

    async def ask(self, ask: StoreAsk, timeout_s: Seconds) -> StoreAnswer:
        """The store's answer. Raises `PeerError` if it is away, or does not answer in time; what
        it was asked may be done all the same."""
        calls, stream = self._calls, self._stream
        if calls is None or stream is None:
            raise PeerError(f"{self._name} is not there now: its log says why, or try again")
        ask = replace(ask, wait_s=timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await calls.call(Kind.STORE_ASK, ask, (Kind.STORE_ANSWER,))
        except TimeoutError:
            raise PeerError(f"{self._name} did not answer within {timeout_s:g} s") from None
        if problem := wrong_in_answer(answer, ask):
            stream.end(f"it answers what can't be: {problem}")
            raise PeerError(f"{self._name} answers what can't be: {problem}")
        return answer

    async def run(self) -> None:
        """Watch it until cancelled."""
        waits = ReconnectWait(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            before = self.connections
            with suppress(OSError, TimeoutError, PeerError):
                await self._watch()
            await asyncio.sleep(waits.after(came=self.connections > before))

    # ── one stream ───────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        """From connecting to the end of the stream; raises what it could not begin for."""
        stream = FrameStream(FROM_STORE, clock=self._clock)
        calls = Calls(stream, self._name, timeout_s=LONGEST_ASK_S)
        unread = Unread(stream)
        stream.on_frame = lambda frame: self._heard(frame, calls, unread)
        stream.on_end = lambda ending: self._over(ending, calls, unread)
        try:
            await dial(stream, self.address, CONNECT_TIMEOUT_S)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                stream.send(Kind.STORE_WATCH, StoreWatch(gateway=self._gateway))
                first = await unread.next()
            if first is not None:
                await self._read(stream, calls, unread, decode(first))
        except (FrameError, UsageError) as error:
            self._quiet.trouble("the KV store at %s is of no use: %s", self.address, error)
        finally:
            stream.end("the store is watched no more")
            await stream.wait_closed()

    async def _read(
        self, stream: FrameStream, calls: Calls, unread: Unread, said: KvNews | StoreRefused
    ) -> None:
        """Pass on its news, to the end of the stream. `said` came first: it lets us in or not."""
        if isinstance(said, StoreRefused):
            raise FrameError(f"it refuses this gateway: {said.message}")
        self._begin(stream, calls)
        life = Incarnation(secrets.token_hex(8))
        looking = asyncio.create_task(self._look())
        try:
            self._take(stream, life, said)
            while (frame := await unread.next()) is not None:
                self._take(stream, life, decode(frame))
                await asyncio.sleep(0)  # a dump has many parts, and others want to be served
        finally:
            looking.cancel()
            self._left(stream)

    def _begin(self, stream: FrameStream, calls: Calls) -> None:
        """The store has begun to speak: from here on both sides must be heard."""
        heartbeat_s, lost_after_s = self._config.heartbeat_s, self._config.lost_after_s
        stream.beat(heartbeat_s, lost_after_s, lambda: (Kind.HEARTBEAT, None))
        self._stream, self._calls = stream, calls
        self.connections += 1
        self._quiet.recovered()
        if self.connections > 1:
            _log.info("%s is back", self._name)
        self._on_came()

    def _take(self, stream: FrameStream, life: Incarnation, said: KvNews | StoreRefused) -> None:
        if isinstance(said, StoreRefused):
            raise FrameError("it refuses what it had taken")
        if problem := wrong_in_kv(said, STORES_TIERS):
            raise FrameError(f"it says what can't be: {problem}")
        wish = self._on_news(life, said)
        if wish is not None:
            stream.send(Kind.KV_REPLAY, wish)

    def _left(self, stream: FrameStream) -> None:
        self._stream = self._calls = None
        self.stats, self.pool = (), ()
        reason = stream.ending.reason if stream.ending else "it is watched no more"
        self._quiet.warning("%s is gone, requests go on without it: %s", self._name, reason)
        self._on_left()

    async def _look(self) -> None:
        """Keep its counts fresh."""
        with suppress(PeerError):
            while True:
                answer = await self.ask(StoreAsk(op=StoreOp.STATS), LONGEST_ASK_S)
                self.stats, self.pool = answer.stats, answer.pool
                self._on_stats(self.stats)
                await asyncio.sleep(STATS_EVERY_S)

    @staticmethod
    def _heard(frame: Frame, calls: Calls, unread: Unread) -> None:
        match frame.kind:
            case Kind.HEARTBEAT:
                pass
            case Kind.STORE_ANSWER:
                calls.answered(frame)
            case Kind.KV_DUMP | Kind.KV_EVENTS | Kind.STORE_REFUSED:
                unread.put(frame)
            case _:
                raise FrameError(f"a message of kind {frame.kind} is for workers")

    @staticmethod
    def _over(ending: Ending, calls: Calls, unread: Unread) -> None:
        if ending.stalled:
            unread.forget()
        calls.fail(ending.reason)
        unread.wake()
