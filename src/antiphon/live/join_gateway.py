"""A worker asks its gateway for a place: the other end of `join_socket`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from antiphon.errors import PeerError, UsageError
from antiphon.types import Hello, JoinRefusal, JoinRefused, Seconds, Welcome
from antiphon.wire import (
    TO_WORKER,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    OtherVersionError,
    decode,
)

from .network import Address, TlsAddress, dial

JOIN_TIMEOUT_S = 5.0
_REFUSED = " (without a word: are this host's keys in force? The gateway's log says what it saw)"


class NotYetError(PeerError):
    """The gateway said that it can't take this worker now; so it has not."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A stream on which a gateway said welcome. `ended` tells why it is over, once it is."""

    stream: FrameStream
    welcome: Welcome
    ended: asyncio.Future[Ending]


async def join_gateway(
    gateway: Address,
    hello: Hello,
    begin: Callable[[FrameStream, Welcome], None],
    clock: Callable[[], Seconds],
) -> Joined:
    """Say hello to the gateway that listens there.

    `begin` is called at the welcome itself, before any later message is looked at: it takes over
    the stream's `on_frame`. No stream is left if it raises: `UsageError` if the gateway refuses
    this worker for good; `OSError` or `NotYetError` if it may work later; another `PeerError` if
    it may work in another life (the gateway has given this one up, or may have).
    """
    stream = FrameStream(TO_WORKER, clock=clock)
    attempt = _Attempt(stream, begin, _REFUSED if isinstance(gateway, TlsAddress) else "")
    try:
        await dial(stream, gateway, JOIN_TIMEOUT_S)
        stream.send(Kind.HELLO, hello)
        await asyncio.wait({attempt.settled}, timeout=JOIN_TIMEOUT_S)
        return attempt.result()
    except TimeoutError:
        stream.end("it was not joined")
        raise PeerError(f"nobody took the connection within {JOIN_TIMEOUT_S} s") from None
    except BaseException:
        stream.end("it was not joined")
        raise


class _Attempt:
    """What comes until the gateway has answered."""

    def __init__(
        self, stream: FrameStream, begin: Callable[[FrameStream, Welcome], None], hint: str
    ) -> None:
        loop = asyncio.get_running_loop()
        self.welcome: Welcome | None = None
        self.settled: asyncio.Future[None] = loop.create_future()
        self._stream = stream
        self._begin = begin
        self._hint = hint
        self._refused: JoinRefused | None = None
        self._ended: asyncio.Future[Ending] = loop.create_future()
        stream.on_frame, stream.on_end = self._heard, self._over

    def result(self) -> Joined:
        """See `join_gateway`."""
        if self.welcome is not None:
            return Joined(self._stream, self.welcome, self._ended)
        if self._refused is not None:
            if self._refused.transient:
                raise NotYetError(self._refused.message)
            if self._refused.reason is JoinRefusal.OVER:
                raise PeerError(self._refused.message)
            raise UsageError(f"the gateway refuses this worker: {self._refused.message}")
        if not self._ended.done():
            raise PeerError(f"the gateway did not answer within {JOIN_TIMEOUT_S} s")
        ending = self._ended.result()
        if isinstance(ending.failure, OtherVersionError):
            raise UsageError(f"the gateway is of another version: {ending.reason}")
        raise PeerError(ending.reason + self._hint)

    def _heard(self, frame: Frame) -> None:
        match decode(frame):
            case Welcome() as welcome if not self.settled.done():
                _check(welcome)
                self.welcome = welcome
                self._begin(self._stream, welcome)
            case JoinRefused() as refused if not self.settled.done():
                self._refused = refused
            case _:
                raise FrameError("it did not answer the hello first")
        self.settled.set_result(None)

    def _over(self, ending: Ending) -> None:
        self._ended.set_result(ending)
        if not self.settled.done():
            self.settled.set_result(None)


def _check(welcome: Welcome) -> None:
    """Raises `FrameError` if one could not live by what the gateway says."""
    times = (welcome.heartbeat_s, welcome.lost_after_s, welcome.lease_ttl_s)
    if not all(isfinite(time) and time > 0 for time in times):
        raise FrameError("a time of the welcome is not a positive number")
    if welcome.lost_after_s <= welcome.heartbeat_s:
        raise FrameError("one heartbeat would be one too few: lost_after_s is not above it")
