"""A store that speaks the wire protocol and says what the test wants."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from antiphon.live.socket_folder import listen
from antiphon.types import KvDump, KvReplay, StoreAnswer, StoreAsk, StoreOp, Tier, TierStats
from antiphon.wire import TO_STORE, Ending, Frame, FrameStream, Kind, decode

EMPTY = KvDump(next=0, begins=True, ends=True, blocks=())
STATS = (
    TierStats(
        tier=Tier.HOST,
        blocks=10,
        used_bytes=1000,
        limit_bytes=4000,
        pinned_blocks=1,
        leases=2,
        put_blocks_total=20,
        hit_blocks_total=7,
        missed_blocks_total=3,
        evicted_blocks_total=9,
        dropped=(("quota", 4), ("stale", 1)),
    ),
    TierStats(tier=Tier.DISK, blocks=30, used_bytes=3000, limit_bytes=9000),
)


def plain_answer(ask: StoreAsk) -> StoreAnswer:
    """As a store that has the first key of each look-up, and does all that it is asked."""
    match ask.op:
        case StoreOp.STATS:
            return StoreAnswer(stats=STATS)
        case StoreOp.LOOKUP:
            return StoreAnswer(tiers=((Tier.HOST,), *((),) * (len(ask.keys) - 1)))
        case _:
            return StoreAnswer(blocks=len(ask.keys))


class AnsweringStore:
    """Listens at `path` while it is entered. `asked` lists asks but for those of STATS.

    `first`: what it says to who watches. `answer` None: it leaves that ask unanswered.
    """

    def __init__(
        self,
        path: Path,
        *,
        first: tuple[Kind, object] = (Kind.KV_DUMP, EMPTY),
        answer: Callable[[StoreAsk], StoreAnswer | None] = plain_answer,
    ) -> None:
        self._path = path
        self._first = first
        self._answer = answer
        self._server: asyncio.Server | None = None
        self.streams: list[FrameStream] = []
        self.watched: list[object] = []
        self.replays: list[KvReplay] = []
        self.asked: list[StoreAsk] = []
        self.endings: list[Ending] = []

    def say(self, kind: Kind, message: object) -> None:
        """To whoever watches now."""
        self.streams[-1].send(kind, message)

    def hang_up(self) -> None:
        """End the stream that lives."""
        self.streams[-1].end("the test wants it")

    async def __aenter__(self) -> "AnsweringStore":
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._taken, sock=listen(self._path))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._path.unlink(missing_ok=True)
        for stream in self.streams:
            stream.end("the store is over")

    def _taken(self) -> FrameStream:
        stream = FrameStream(TO_STORE, clock=time.monotonic)
        stream.on_frame = lambda frame: self._heard(stream, frame)
        stream.on_end = self.endings.append
        self.streams.append(stream)
        return stream

    def _heard(self, stream: FrameStream, frame: Frame) -> None:
        match frame.kind:
            case Kind.STORE_WATCH:
                self.watched.append(decode(frame))
                stream.send(*self._first)
                stream.beat(0.05, 20.0, lambda: (Kind.HEARTBEAT, None))
            case Kind.KV_REPLAY:
                self.replays.append(decode(frame))
            case Kind.STORE_ASK:
                ask = decode(frame)
                if ask.op is not StoreOp.STATS:
                    self.asked.append(ask)
                answer = self._answer(ask)
                if answer is not None:
                    stream.send(Kind.STORE_ANSWER, answer, frame.number)
            case _:
                assert frame.kind == Kind.HEARTBEAT
