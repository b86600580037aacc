"""A stream of frames between two processes, with an end that nobody can miss.

A stream is ordered and loses nothing while it lives. It is over, once and for good, when

* either side closes it, or its process ends;
* something malformed, oversized or misplaced comes;
* nothing was heard for `lost_after_s` (`beat` sees to it that a living side is heard);
* this process itself did not run for that long (it was stopped, or its loop was blocked): then the
  other side must have given it up, and what lies in the socket is from a life that is over. That
  is looked at before anything else, whenever the stream is touched;
* the other side stopped reading: more than `MAX_UNSENT_BYTES` wait for it.

Whoever sends in bulk waits for `room`; small messages may use what is left up to the bound.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from antiphon.errors import PeerError
from antiphon.types import Seconds

from .codec import Kind, encode
from .frame import Frame, FrameError, FrameReader

ROOM_BYTES = 256 * 2**10
"""More than this unsent, and there is no room until half of it is gone."""
MAX_UNSENT_BYTES = 80 * 2**20
"""Room, the longest message, and some more."""
LINGER_S = 1.0
"""How long the last words of a stream may take to leave."""
_UCRED = Struct("3i")
"""Linux: pid, user and group of a Unix socket's other side."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a stream is over. `stalled`: this process did not run, so nothing here is fresh."""

    reason: str
    stalled: bool = False
    failure: FrameError | None = None
    """What the other side did wrong, if it did."""


class FrameStream(asyncio.Protocol):
    """One side. `receives` are the kinds that may come (see `codec`). All on one event loop.

    `on_frame` gets each frame at once and may raise `FrameError`, and what a `send` of its own
    raises; `on_end` is called once, whatever ended the stream. `last_words` are sent when what came
    was wrong. All may be set anew by whoever takes the stream over.

    `answers`: most of what comes is answered, so that nothing more is taken from the socket while
    what was sent finds no room. Whoever asks and does not read is heard no more, and so is lost.
    """

    def __init__(
        self, receives: Mapping[int, int], *, clock: Callable[[], Seconds], answers: bool = False
    ) -> None:
        self.on_frame: Callable[[Frame], None] = _ignore
        self.on_end: Callable[[Ending], None] = _ignore
        self.last_words: Callable[[FrameError], bytes] = _nothing
        self._reader = FrameReader(receives)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._ending: Ending | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost_after_s: Seconds | None = None
        self._heard_at = self._ran_at = clock()
        self._answers = answers
        self._paused = False
        self._reading = True
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()

    # ── state ────────────────────────────────────────────────────────────────────────────────

    @property
    def ending(self) -> Ending | None:
        """Why the stream is over; None while it lives."""
        return self._ending

    @property
    def heard_at(self) -> Seconds:
        """When something came last."""
        return self._heard_at

    @property
    def unsent_bytes(self) -> int:
        """What waits until the other side reads."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    @property
    def peer_pid(self) -> int | None:
        """The process that opened the other end, as the system said when this one was made; None:
        it is none that can be named here."""
        connection = self._transport and self._transport.get_extra_info("socket")
        if connection is None or connection.family != socket.AF_UNIX:
            return None
        try:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        except (OSError, ValueError):  # closed, and whoever has it has not heard of it yet
            return None
        return _UCRED.unpack(credentials)[0] or None

    @property
    def peer_names(self) -> tuple[str, ...] | None:
        """The names in the certificate that the other side has shown; None: the stream is not TLS,
        the other side is on this host."""
        if self._transport is None or self._transport.get_extra_info("ssl_object") is None:
            return None
        shown = self._transport.get_extra_info("peercert") or {}
        names = shown.get("subjectAltName", ())
        return tuple(name for kind, name in names if kind == "DNS")

    def alive(self) -> bool:
        """Whether the stream lives, after a look at the clock. Mutates if it does not any more."""
        if self._ending is None and self._lost_after_s is not None:
            gap = self._clock() - self._ran_at
            if gap > self._lost_after_s:
                self.end(f"this process did not run for {gap:.2f} s", stalled=True)
        return self._ending is None

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def send(self, kind: Kind, message: object = None, number: int = 0) -> None:
        """Write one message; never waits. Raises `PeerError` if the stream is over (also by this
        very message), `MessageTooLongError` if it is too long: then the stream lives on.
        """
        self.send_frame(encode(kind, message, number))

    def send_frame(self, data: bytes) -> None:
        """Like `send`, of a message that `encode` has made."""
        if not self.alive() or self._transport is None:
            raise PeerError(self._ending.reason if self._ending else "the stream is not open")
        if self._transport.is_closing():
            self.end("the connection broke")
            raise PeerError("the connection broke")
        if self.unsent_bytes + len(data) > MAX_UNSENT_BYTES:
            self.end(f"the other side does not read: {self.unsent_bytes} bytes wait for it")
            raise PeerError("the other side does not read")
        self._transport.write(data)

    async def room(self) -> None:
        """Return when bulk may be sent. Raises `PeerError` if the stream is over."""
        await self._room.wait()
        if not self.alive() and self._ending is not None:
            raise PeerError(self._ending.reason)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def widen(self, receives: Mapping[int, int]) -> None:
        """The other side is known now: from the next frame on, these kinds may come."""
        self._reader.widen(receives)

    def also(self, receives: Mapping[int, int]) -> None:
        """Until it is widened these kinds may come, too."""
        self._reader.also(receives)

    def pause(self) -> None:
        """Take nothing more from the socket: the other side will find no room. Silence does not
        count meanwhile."""
        self._paused = self._transport is not None
        self._read_or_not()

    def resume(self) -> None:
        """Undo `pause`."""
        self._paused = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        reading = not self._paused and (self._room.is_set() or not self._answers)
        transport = self._transport
        if transport is None or self._ending or transport.is_closing() or reading is self._reading:
            return
        self._reading = reading
        if reading:
            self._heard_at = self._clock()
            transport.resume_reading()
        else:
            transport.pause_reading()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def beat(
        self, every_s: Seconds, lost_after_s: Seconds, say: Callable[[], tuple[Kind, Any]]
    ) -> None:
        """From now on: send what `say` returns every `every_s`, and end the stream on silence."""
        self._lost_after_s = lost_after_s
        self._heard_at = self._ran_at = self._clock()
        self._beat(every_s, say)

    def end(self, reason: str, *, stalled: bool = False) -> None:
        """End it now; what is unsent is lost. No effect on a stream that is over."""
        self._over(Ending(reason, stalled))
        if self._transport is not None:
            self._transport.abort()

    def finish(self, reason: str) -> None:
        """End it, but let what was sent leave, for `LINGER_S` at most."""
        self._over(Ending(reason))
        self._let_leave()

    async def wait_closed(self) -> None:
        """Return when the socket is closed."""
        await self._closed.wait()

    def _beat(self, every_s: Seconds, say: Callable[[], tuple[Kind, Any]]) -> None:
        if not self.alive():
            return
        self._ran_at = now = self._clock()
        if self._paused:
            self._heard_at = now
        lost_after_s = self._lost_after_s or 0.0
        if now - self._heard_at > lost_after_s:
            self.end(f"nothing was heard for {now - self._heard_at:.2f} s")
            return
        if self._room.is_set():
            try:
                self.send(*say())
            except PeerError:
                if self._ending is None:
                    raise
                return  # this very word ended the stream; whoever has it was told why
        self._timer = self._loop.call_later(every_s, self._beat, every_s, say)

    def _let_leave(self) -> None:
        if self._transport is not None and not self._closed.is_set():
            self._transport.close()
            self._timer = self._loop.call_later(LINGER_S, self._transport.abort)

    def _over(self, ending: Ending) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        if self._timer is not None:
            self._timer.cancel()
        self._room.set()
        if self._transport is None:
            self._closed.set()
        self.on_end(ending)

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports have the methods, but not the class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ROOM_BYTES)
        if self._ending is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if not self.alive():
            return
        self._heard_at = self._clock()
        try:
            for frame in self._reader.feed(data):
                self.on_frame(frame)
                if self._ending is not None:
                    return
        except FrameError as error:
            if self._transport is not None:
                self._transport.write(self.last_words(error))
            self._over(Ending(str(error), failure=error))
            self._let_leave()
        except PeerError:
            if self._ending is None:
                raise  # it was of another stream

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.clear()
        self._read_or_not()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._room.set()
        self._read_or_not()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._reader.within_frame:
            reason = "the other side went away in the middle of a message"
        else:
            reason = f"the connection broke: {exc}" if exc else "the other side closed it"
        self._over(Ending(reason))
        if self._timer is not None:
            self._timer.cancel()
        self._closed.set()


def _ignore(_: object) -> None:
    """Nobody listens yet."""


def _nothing(_: FrameError) -> bytes:
    return b""
