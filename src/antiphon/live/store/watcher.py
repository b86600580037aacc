"""A gateway's stream to the store: what comes and goes, and what operators ask."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvFeed
from antiphon.types import KvReplay, StoreAnswer, StoreAsk, StoreOp
from antiphon.wire import Frame, FrameError, FrameStream, Kind, decode

from .telling import tell_kv

MOST_ASKED = 16
"""So many questions may be unanswered; more are refused, but for counts, which are at hand."""


class Operator(Protocol):
    """Who does what operators ask."""

    async def answer(self, ask: StoreAsk) -> StoreAnswer:
        """Do it. What can't be done is the answer's `problem`."""
        ...


class Watcher:
    """Implements `port.Caller`. `on_over` is called once, when the stream is over."""

    def __init__(
        self,
        feed: KvFeed,
        operator: Operator,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_over: Callable[["Watcher"], None],
    ) -> None:
        self._feed = feed
        self._operator = operator
        self._spawn = spawn
        self._on_over = on_over
        self._telling: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()

    def begin(self, stream: FrameStream) -> None:
        """See `Caller`."""
        self._telling = self._spawn(tell_kv(stream, self._feed))

    def over(self) -> None:
        """See `Caller`."""
        for task in (*self._asked, *([self._telling] if self._telling else [])):
            task.cancel()
        self._on_over(self)

    def heard(self, stream: FrameStream, frame: Frame) -> None:
        """See `Caller`."""
        match decode(frame):
            case None:
                pass  # a heartbeat
            case KvReplay() as wish:
                self._feed.kv_replay(wish)
            case StoreAsk() as ask:
                self._begin_answer(stream, ask, frame.number)
            case other:
                raise FrameError(f"a gateway may not say {type(other).__name__} here")

    def _begin_answer(self, stream: FrameStream, ask: StoreAsk, number: int) -> None:
        if ask.op is StoreOp.STATS:
            self._spawn(self._answer(stream, ask, number))  # it waits for nothing
            return
        if len(self._asked) >= MOST_ASKED:
            busy = StoreAnswer(problem=f"the store has {MOST_ASKED} questions to answer: ask later")
            stream.send(Kind.STORE_ANSWER, busy, number)
            return
        task = self._spawn(self._answer(stream, ask, number))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _answer(self, stream: FrameStream, ask: StoreAsk, number: int) -> None:
        answer = await self._operator.answer(ask)
        with contextlib.suppress(PeerError):  # nobody waits for it any more
            stream.send(Kind.STORE_ANSWER, answer, number)
