"""Questions and answers over one stream, paired by the number in the frame."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from antiphon.errors import PeerError
from antiphon.types import Seconds

from .codec import Kind, decode
from .frame import MAX_NUMBER, Frame, FrameError
from .stream import FrameStream

MAX_CALLS = 4096
"""So many may wait for an answer."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Who waits, what may be answered, and about which request or lease ("": any)."""

    answer: asyncio.Future[Any]
    kinds: tuple[Kind, ...]
    about: str


class Calls:
    """The calls of one side. `who` names the other one in errors. Each waits `timeout_s` at most.

    Its owner passes frames to `answered`, and the stream's end to `fail`.
    """

    def __init__(self, stream: FrameStream, who: str, *, timeout_s: Seconds) -> None:
        self._stream = stream
        self._who = who
        self._timeout_s = timeout_s
        self._calls: dict[int, _Call] = {}
        self._number = 0

    @property
    def full(self) -> bool:
        """Whether so many calls wait that one more would fail."""
        return len(self._calls) >= MAX_CALLS

    async def call(
        self, kind: Kind, message: object, answers: tuple[Kind, ...], about: str = ""
    ) -> Any:
        """Send it and return the answer, one of the kinds `answers`.

        Raises `PeerError` if the stream is over or ends before, or the answer does not come in
        time: then it is dropped when it comes.
        """
        return await self.ask(kind, message, answers, about)

    def ask(
        self, kind: Kind, message: object, answers: tuple[Kind, ...], about: str = ""
    ) -> asyncio.Future[Any]:
        """`call`, without waiting: the answer that will come, or the `PeerError`.

        Raises `PeerError` if it can't be sent. An answer that was cancelled is dropped.
        """
        if self.full:
            raise PeerError(f"{self._who} leaves {MAX_CALLS} calls unanswered")
        number = self._next_number()
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._calls[number] = _Call(answer, answers, about)
        timer = loop.call_later(self._timeout_s, self._too_late, answer)
        answer.add_done_callback(partial(self._over, number, timer))
        try:
            self._stream.send(kind, message, number)
        except BaseException:
            if not answer.cancel():
                answer.exception()  # seen: sending broke the stream, and this with it
            raise
        return answer

    def _over(self, number: int, timer: asyncio.TimerHandle, _answer: asyncio.Future[Any]) -> None:
        timer.cancel()
        del self._calls[number]

    def answered(self, frame: Frame) -> None:
        """An answer came. Raises `FrameError` if it can't be one to the call of its number."""
        call = self._calls.get(frame.number)
        if call is None or call.answer.done():
            return
        if frame.kind not in call.kinds:
            raise FrameError(f"a message of kind {frame.kind} answers nothing that was asked")
        answer = decode(frame)
        if call.about and call.about != getattr(answer, "request", getattr(answer, "lease", "")):
            raise FrameError("an answer is about something else than its call")
        call.answer.set_result(answer)

    def _too_late(self, answer: asyncio.Future[Any]) -> None:
        if not answer.done():
            answer.set_exception(
                PeerError(f"{self._who} did not answer within {self._timeout_s} s")
            )

    def fail(self, reason: str) -> None:
        """The stream is over: all calls that wait raise `PeerError`."""
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(PeerError(f"{self._who}: {reason}"))

    def _next_number(self) -> int:
        """Never 0, and none that a call waits with."""
        self._number = self._number % MAX_NUMBER + 1
        while self._number in self._calls:
            self._number = self._number % MAX_NUMBER + 1
        return self._number
