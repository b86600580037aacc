"""The owner's side of one connection after its handshake: requests are answered in their order.

    request ──► check generations ──► send from page memory ──► check again ──► …

Nothing that a taker says is trusted: each count has a limit, and whatever is odd ends it.
"""

from typing import Protocol

import numpy as np

from antiphon.store.transfer.region import OwnedRegion

from .frames import HEAD_WORDS, ROW_BYTES, Reply, Request
from .handshake import Session
from .sealed_channel import SealedChannel
from .slice_io import serve
from .slice_kernels import areas_of, check_rows, recheck_rows
from .slice_room import SliceRoom
from .vectored_io import ODD, Patience, areas_in, check

PAGES, BYTES, REFUSED_PAGES = range(3)
"""What is counted, int64 [3]: pages sent, their bytes, pages that were not as asked for."""


class ServedSlices(Protocol):
    """`run` until the connection is over."""

    def run(self, counts: np.ndarray, patience: Patience) -> None:
        """Always raises `PeerError`: why it is over. `counts` grow meanwhile."""
        ...


def served_slices(fd: int, session: Session, region: OwnedRegion) -> ServedSlices:
    """As the session agreed."""
    if session.sends is None or session.hears is None:
        return PlainServed(fd, region)
    return SealedServed(SealedChannel(fd, session.sends, session.hears), region)


class PlainServed:
    """All in compiled code: it needs the interpreter when the connection is over."""

    def __init__(self, fd: int, region: OwnedRegion) -> None:
        self._fd = fd
        self._region = region
        self._room = SliceRoom()

    def run(self, counts: np.ndarray, patience: Patience) -> None:
        """See `ServedSlices`."""
        room, region = self._room, self._region
        code = serve(
            self._fd,
            (
                region.generations.ctypes.data,
                region.content.ctypes.data,
                region.header.pages,
                region.header.page_bytes,
            ),
            room.head,
            room.rows,
            room.reply,
            room.before,
            room.areas,
            room.message,
            counts,
            patience.stopped,
            patience.ticks,
        )
        if code == ODD:
            Request.decoded(room.head.tobytes(), region.header.page_bytes)  # says what is odd
        check(code, patience)


class SealedServed:
    """Through encrypted records."""

    def __init__(self, channel: SealedChannel, region: OwnedRegion) -> None:
        self._channel = channel
        self._region = region
        self._room = SliceRoom()

    def run(self, counts: np.ndarray, patience: Patience) -> None:
        """See `ServedSlices`."""
        room, page_bytes = self._room, self._region.header.page_bytes
        while True:
            self._channel.receive(areas_in(room.head), patience, patient=True)
            request = Request.decoded(room.head.tobytes(), page_bytes)
            rows = room.rows[: request.rows]
            assert rows.nbytes == request.rows * ROW_BYTES
            self._channel.receive(areas_in(rows), patience)
            good = self._answer(request, rows, patience)
            counts[PAGES] += good
            counts[BYTES] += good * (request.end - request.start)
            counts[REFUSED_PAGES] += request.rows - good

    def _answer(self, request: Request, rows: np.ndarray, patience: Patience) -> int:
        room, region = self._room, self._region
        generations_at: int = region.generations.ctypes.data
        said = room.before[: request.rows]
        good = int(check_rows(generations_at, region.header.pages, rows, said))
        head = np.frombuffer(Reply(request.number, request.rows).encoded(), np.uint8)
        count = areas_of(
            region.content.ctypes.data,
            region.header.page_bytes,
            request.start,
            request.end,
            np.ascontiguousarray(rows[:, 0]),
            said,
            room.areas,
        )
        self._channel.send(np.concatenate((areas_in(head, said), room.areas[:count])), patience)
        recheck_rows(generations_at, rows, said)
        self._channel.send(areas_in(said), patience)
        return good


assert Request.FORMAT.size == 8 * HEAD_WORDS
