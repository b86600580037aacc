"""Is there a door, how far is it, how fast is the way, and what does the clock there say?

    probe ── Probe(bytes) ──► door of another host ── Probed(clock, filler) ──► Found

Both have shown certificates of the cluster by then. A door answers what it can at once, and ends a
stream that asks faster than it reads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from antiphon.errors import PeerError, UsageError
from antiphon.types import Probe, Probed, Seconds
from antiphon.wire import (
    FROM_PROBED,
    PROBES,
    Calls,
    Ending,
    Frame,
    FrameError,
    FrameStream,
    Kind,
    decode,
)

from .dial import TlsAddress, dial
from .unanswered import HUNG_UP, unanswered

MOST_PROBE_BYTES = 2**20
DIAL_TIMEOUT_S: Seconds = 3.0
_ANSWER_TIMEOUT_S: Seconds = 3.0
_FIRST_BYTES = 2**14
_MEASURE_S: Seconds = 0.6
_LONG_ENOUGH_S: Seconds = 0.1
"""An answer that took so long tells the speed; after a shorter one twice the size is asked for."""
_ROUND_TRIPS = 3
_LOOK = "see what the log of that host says of it"
_LEAST_S: Seconds = 1e-6
"""No answer takes less: a clock that did not move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a probe found. `problem`: why nobody can be joined there, without the address; then
    `remedy` says what to do, if that is known, and all else is None.

    `clock_ahead_s`: how far the clock there is ahead of the one here, to about a round trip.
    `bytes_per_s`: of one answer over one TLS stream, its round trip included, so that the way
    itself is at least that fast.
    """

    problem: str = ""
    remedy: str = ""
    round_trip_s: Seconds | None = None
    clock_ahead_s: Seconds | None = None
    bytes_per_s: float | None = None


def answer_probes(stream: FrameStream) -> None:
    """Have a stranger's stream answer probes until it is somebody's."""
    hear = stream.on_frame

    def heard(frame: Frame) -> None:
        if frame.kind == Kind.PROBE:
            _answer(stream, decode(frame), frame.number)
        else:
            hear(frame)

    stream.also(PROBES)
    stream.on_frame = heard


def _answer(stream: FrameStream, probe: Probe, number: int) -> None:
    if not 0 <= probe.bytes <= MOST_PROBE_BYTES:
        raise FrameError(f"it probes with {probe.bytes} bytes, at most {MOST_PROBE_BYTES} may be")
    if stream.unsent_bytes > MOST_PROBE_BYTES:
        raise FrameError("it probes faster than it reads")
    stream.send(Kind.PROBED, Probed(unix_s=time.time(), filler=bytes(probe.bytes)), number)


async def probe(address: TlsAddress) -> Found:
    """Ask the door at that one path. Never raises but what is a bug."""
    stream = FrameStream(FROM_PROBED, clock=time.monotonic)
    calls = Calls(stream, "it", timeout_s=_ANSWER_TIMEOUT_S)
    has_answered = hung_up = False

    def heard(frame: Frame) -> None:
        nonlocal has_answered
        has_answered = True
        calls.answered(frame)

    def ended(ending: Ending) -> None:
        nonlocal hung_up
        hung_up = not has_answered and ending.failure is None
        calls.fail(ending.reason)

    stream.on_frame, stream.on_end = heard, ended
    try:
        await dial(stream, address, DIAL_TIMEOUT_S)
        round_trip_s, ahead_s = await _near(calls)
        return Found(
            round_trip_s=round_trip_s,
            clock_ahead_s=ahead_s,
            bytes_per_s=await speed(lambda size: _took(calls, size), time.monotonic),
        )
    except (OSError, UsageError) as error:
        found = unanswered(error.__cause__ or error, address.name)
        return Found(problem=found.problem, remedy=found.remedy)
    except PeerError as error:
        if hung_up:
            return Found(problem=HUNG_UP.problem, remedy=HUNG_UP.remedy)
        return Found(problem=str(error), remedy=_LOOK)
    finally:
        stream.end("that was all")
        await stream.wait_closed()


async def _near(calls: Calls) -> tuple[Seconds, Seconds]:
    """The shortest round trip, and how far the clock there was ahead in the middle of it."""
    trips: list[tuple[Seconds, Seconds]] = []
    for _ in range(_ROUND_TRIPS):
        here_s = time.time()
        took_s, probed = await _asked(calls, 0)
        trips.append((took_s, probed.unix_s - (here_s + took_s / 2)))
    return min(trips)


async def speed(ask: Callable[[int], Awaitable[Seconds]], clock: Callable[[], Seconds]) -> float:
    """Of larger and larger answers the fastest one, in bytes a second of all the time it took: the
    way is at least that fast, however its round trips vary. `ask` has that many bytes sent, and
    returns how long that took."""
    size, best, began = _FIRST_BYTES, 0.0, clock()
    while clock() - began < _MEASURE_S:
        took_s = await ask(size)
        best = max(best, size / max(took_s, _LEAST_S))
        if took_s < _LONG_ENOUGH_S:
            size = min(2 * size, MOST_PROBE_BYTES)
    return best


async def _took(calls: Calls, size: int) -> Seconds:
    took_s, _ = await _asked(calls, size)
    return took_s


async def _asked(calls: Calls, size: int) -> tuple[Seconds, Probed]:
    began = time.monotonic()
    probed: Probed = await calls.call(Kind.PROBE, Probe(size), (Kind.PROBED,))
    if len(probed.filler) != size:
        raise PeerError(f"it was asked for {size} bytes and sent {len(probed.filler)}")
    return time.monotonic() - began, probed


async def probe_all(addresses: list[TlsAddress]) -> list[Found]:
    """One after the other: side by side they would slow each other down."""
    return [await probe(address) for address in addresses]


def probe_each(addresses: list[TlsAddress]) -> list[Found]:
    """`probe_all`, from a program without an event loop."""
    return asyncio.run(probe_all(addresses))
