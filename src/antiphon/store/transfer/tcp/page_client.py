"""Pages of another host's region, read over parallel TCP streams straight into our own.

    client = PageClient(access, own_region)
    good = client.pull(pages, timeout_s=2.0)        # from any thread; several at a time

Which slice goes over which path is `core.transfer`'s decision; each stream is a thread that carries
it out (`client_stream`). What comes is believed only if the owner had the page under the offered
generation before and after it sent it, and it has the offered checksum; all else is a miss.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from antiphon.core.tcp_endpoint import TcpEndpoint, parse_endpoint
from antiphon.core.transfer import (
    LEAST_SLICE_BYTES,
    Cut,
    Paths,
    PathView,
    Slice,
    SliceBook,
    slice_bytes,
)
from antiphon.errors import BugError, PeerError
from antiphon.store.transfer.mapping import Miss, pull_table
from antiphon.store.transfer.page_copy import ROW_WORDS, Part
from antiphon.store.transfer.region import OwnedRegion
from antiphon.types import DataAccess, PagePull, Seconds

from .client_stream import ClientStream, StreamLimits
from .reading import OnPart, Reading, Table
from .warm_up import warm_up_taker

STREAMS = 4
"""Connections of each path."""
_LONGEST_WAIT_S: Seconds = 5.0


@dataclass(frozen=True, slots=True)
class Read:
    """What came of one pull: which pages are good, bool [pages], and why the others are not."""

    good: npt.NDArray[np.bool_]
    missed: Counter[Miss]


class PageClient:
    """Reads what `access` opens into pages of `own`. Connects when it is first used.

    `missed` counts the pages that were not read by reason, `pulled` those that were.
    """

    def __init__(
        self,
        access: DataAccess,
        own: OwnedRegion,
        *,
        streams: int = STREAMS,
        limits: StreamLimits = StreamLimits(),  # noqa: B008 - frozen
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        """Raises `PeerError` if it has no address that can be used."""
        warm_up_taker(own)
        self.access = access
        self.missed: Counter[Miss] = Counter()
        self.pulled = 0
        self._own = own
        self._clock = clock
        self._streams_a_path = streams
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._endpoints = _endpoints(access)
        self._paths = Paths(len(self._endpoints), streams)
        self._book = SliceBook(self._paths)
        self._readings: dict[int, Reading] = {}
        self._closed = False
        self._streams = [
            ClientStream(self, path, endpoint, access, own.header, limits)
            for path, endpoint in enumerate(self._endpoints)
            for _ in range(streams)
        ]
        self._no_thread = ""

    # ── for those who read ───────────────────────────────────────────────────────────────────

    def pull(
        self,
        pages: Sequence[PagePull],
        timeout_s: Seconds,
        *,
        parts: Sequence[Part] = (),
        on_part: OnPart | None = None,
    ) -> tuple[bool, ...]:
        """Read `pages` into their targets; which of them now hold what was offered.

        Blocks, without the interpreter lock, for `timeout_s` at most and what it takes to notice.
        Targets become odd; those that are not good hold nothing of use. With `parts` (of all bytes
        of a page, in order), the first part of all pages comes first, and `on_part` is told, on
        some thread. Raises `BugError` for a target that does not exist; whatever the peer does is
        a miss.
        """
        table = pull_table(pages)
        return tuple(self.pull_table(table, timeout_s, parts=parts, on_part=on_part).tolist())

    def pull_table(
        self,
        table: Table,
        timeout_s: Seconds,
        *,
        parts: Sequence[Part] = (),
        on_part: OnPart | None = None,
    ) -> np.ndarray:
        """Like `pull`, for a table of uint64 [pages, 4]; returns bool [pages]."""
        return self.wait(self.begin(table, timeout_s, parts=parts, on_part=on_part)).good

    def begin(
        self,
        table: Table,
        timeout_s: Seconds,
        *,
        parts: Sequence[Part] = (),
        on_part: OnPart | None = None,
    ) -> int:
        """Begin a pull, for `wait`; returns its number. May take memory from the system.

        One of a single slice may begin with `wait` only.
        """
        cut = self._cut(table, parts)
        reading = Reading(table, self._own, cut, on_part, timeout_s=timeout_s)
        backed = self._prepare(table[:, ROW_WORDS - 1])
        with self._lock:
            number = self._book.begin(cut, self._clock() + timeout_s)
            self._readings[number] = reading
            if not self._start() or self._closed or not backed:
                self._book.cancel(number)
            self._settle()
            reading.begun = cut.slices > 1 or not any(one.idle for one in self._streams)
            if reading.begun:
                self._work.notify_all()
        return number

    def stop(self, number: int) -> None:
        """Nobody wants this pull any more; `wait` for it returns soon."""
        with self._lock:
            if number in self._readings:
                self._book.cancel(number)
                self._settle()

    def wait(self, number: int) -> Read:
        """Wait for the end of a pull that was begun; once."""
        reading = self._readings[number]
        if not reading.begun:
            self._carry_out()
        while not reading.ended.wait(self._wait_s()):
            with self._lock:
                self._expire(self._clock())
        with self._lock:
            parts = self._book.parts_here(number)
        reading.finish(parts)
        missed = reading.missed()
        with self._lock:
            self._book.forget(number)
            del self._readings[number]
            self.missed.update(missed)
            self.pulled += len(reading.verdicts) - missed.total()
        return Read(reading.good(), missed)

    def paths(self) -> tuple[PathView, ...]:
        """Each path: its speed, what is under way, whether it rests, and why."""
        with self._lock:
            return self._paths.views(self._clock())

    @property
    def problem(self) -> str:
        """What was wrong last, with paths or here; empty: nothing."""
        with self._lock:
            return "; ".join(filter(None, (self._no_thread, self._paths.problem)))

    def close(self) -> None:
        """Stop all; returns when nothing is written any more. Pulls end with what they have."""
        with self._lock:
            self._closed = True
            for number in self._readings:
                self._book.cancel(number)
            self._settle()
            self._work.notify_all()
        for stream in self._streams:
            if stream.ident is not None:
                stream.join()

    # ── for streams ──────────────────────────────────────────────────────────────────────────

    def next_for(self, stream: ClientStream) -> list[Slice] | None:
        """What a stream is to do: ask for these slices, besides what it has asked for already.

        Empty: receive what was asked for or, where nothing was, connect. None: end. Waits.
        """
        with self._work:
            while not self._closed or stream.borrowed:
                if stream.borrowed:
                    self._work.wait()
                    continue
                now = self._clock()
                self._expire(now)
                if stream.connected:
                    taken = self._taken(stream, now)
                    if taken or stream.outstanding:
                        return taken
                elif self._book.left_bytes and self._paths.may_connect(stream.path, now):
                    return []
                self._work.wait(self._stream_wait_s(stream, now))
        return None

    def reading(self, one: Slice) -> Reading:
        """The pull that a slice is of."""
        return self._readings[one.pull]

    def connected(self, path: int, round_trip_s: Seconds) -> None:
        """A stream has a connection."""
        with self._lock:
            self._paths.connected(path, round_trip_s)
            self._work.notify_all()

    def came(self, one: Slice, path: int) -> None:
        """A slice is here, with its owner's verdicts."""
        reading = self._readings[one.pull]
        with self._lock:
            arrival = self._book.came(one, path, self._clock())
            self._wake()
            if not arrival.group:
                self._settle()
        parts = arrival.parts
        if arrival.group:
            reading.prove(one.group)
            with self._lock:
                parts = self._book.proven(one.pull)
        reading.tell(parts)
        if arrival.group:
            with self._lock:
                self._settle()

    def failed(
        self, path: int, slices: Sequence[Slice], problem: str, *, blamed: bool, refused: bool
    ) -> None:
        """A stream lost its connection, and these with it; not `blamed`: for no fault of either."""
        with self._lock:
            for one in reversed(slices):
                its_fault = blamed and one is slices[0]
                self._book.gave_back(one, path, blamed=its_fault, lost=blamed)
            now = self._clock()
            if blamed:
                self._paths.failed(path, problem, now, refused=refused)
            self._expire(now)
            self._work.notify_all()

    def _carry_out(self) -> None:
        """Have this thread, which would wait, receive a slice over a stream that is idle:
        to wake another thread, and be woken, takes longer than a small slice does."""
        with self._lock:
            now = self._clock()
            stream, one = self._borrowed(now)
            if stream is None or one is None:
                self._work.notify_all()
                return
            left_s = self._book.deadline(one.pull) - now
        try:
            stream.carry_out(one, left_s)
        finally:
            with self._lock:
                stream.borrowed = False
                if self._book.left_bytes or self._closed:
                    self._work.notify_all()

    # ── under the lock ───────────────────────────────────────────────────────────────────────

    def _borrowed(self, now: Seconds) -> tuple[ClientStream | None, Slice | None]:
        """A stream that is ours alone, and the slice that goes over it; or none."""
        for stream in self._streams:
            if stream.idle and (one := self._book.take(stream.path, now)) is not None:
                stream.borrowed = True
                return stream, one
        return None, None

    def _taken(self, stream: ClientStream, now: Seconds) -> list[Slice]:
        taken: list[Slice] = []
        while stream.room > len(taken) and (one := self._book.take(stream.path, now)) is not None:
            taken.append(one)
        return taken

    def _expire(self, now: Seconds) -> None:
        self._book.expire(now)
        self._settle()

    def _settle(self) -> None:
        """Stop what nobody wants any more, and tell those whose pull is over."""
        for number, reading in self._readings.items():
            if not self._book.wanted(number):
                reading.stopped[0] = True
            if not reading.ended.is_set() and self._book.over(number):
                reading.end(self._book.missing_groups(number))

    def _wake(self) -> None:
        if self._book.left_bytes:
            self._work.notify_all()

    def _start(self) -> bool:
        """Start the streams that do not run: as many as there are threads for. False: none runs."""
        self._no_thread = ""
        for stream in self._streams:
            if stream.ident is None and not self._closed:
                try:
                    stream.start()
                except RuntimeError as error:
                    self._no_thread = f"no thread reads pages: {error}"
                    break
        return any(stream.ident is not None for stream in self._streams)

    def _stream_wait_s(self, stream: ClientStream, now: Seconds) -> Seconds | None:
        """Until something may have changed that nobody tells; None: while nothing is to do."""
        times = [at for at in (self._book.next_deadline(),) if at is not None]
        if self._book.left_bytes and (at := self._paths.try_again_at(stream.path)) is not None:
            times.append(at)
        return max(0.001, min(times) - now) if times else None

    # ── with none ────────────────────────────────────────────────────────────────────────────

    def _wait_s(self) -> Seconds:
        with self._lock:
            deadline = self._book.next_deadline()
        if deadline is None:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, max(0.001, deadline - self._clock()))

    def _cut(self, table: Table, parts: Sequence[Part]) -> Cut:
        page_bytes = self._own.header.page_bytes
        ranges = [(part.start, part.end) for part in parts] or [(0, page_bytes)]
        borders = [0, *(end for _, end in ranges)]
        if borders[:-1] != [start for start, _ in ranges] or borders[-1] != page_bytes:
            raise BugError(f"parts {ranges} are not all of a page of {page_bytes} bytes")
        total = len(table) * page_bytes
        if total <= LEAST_SLICE_BYTES:
            return Cut.of(len(table), ranges, total)
        with self._lock:
            rate = self._paths.stream_bytes_per_s(self._clock())
        return Cut.of(len(table), ranges, slice_bytes(total, len(self._streams), rate))

    def _prepare(self, targets: np.ndarray) -> bool:
        """Make the targets ours to write. False: there is no memory for them."""
        if len(targets) and int(targets.max()) >= self._own.header.pages:
            raise BugError(f"target {int(targets.max())} of a pull does not exist")
        listed = targets.astype(np.int64)
        if not self._own.back_each(listed):
            return False
        self._own.begin_write(listed)
        return True


def _endpoints(access: DataAccess) -> list[TcpEndpoint]:
    endpoints = [parse_endpoint(text) for text in access.endpoints]
    found = [one for one in endpoints if one is not None]
    if not found or len(found) < len(endpoints):
        named = ", ".join(access.endpoints) or "no address"
        raise PeerError(f"a peer's pages can't be read at {named}")
    return found
