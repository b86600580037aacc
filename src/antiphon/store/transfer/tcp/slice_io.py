"""A slice over a plain connection: all of it in compiled code, without the interpreter lock.

Encrypted connections do the same in Python (`sealed_slices`). Arrays come from `slice_room`.
"""

import numpy as np

from antiphon.core.transfer import MOST_ROWS
from antiphon.store.transfer.kernel import kernel
from antiphon.store.transfer.page_copy import GOOD, IMPOSSIBLE, OVERTAKEN, STALE
from antiphon.store.transfer.xxh3 import LEAST_BYTES, STRIPE_BYTES

from .frames import HEAD_WORDS, MOST_REQUEST_BYTES, REPLY_BYTES, ROW_BYTES
from .slice_kernels import areas_of, check_rows, prove_rows, recheck_rows
from .vectored_io import DONE, ODD, receive_areas, send_areas

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_PROVEN_BYTES = 256 << 10
"""Checksums are compared as soon as so much has come: it is in the core's cache still."""


@kernel
def serve(  # noqa: PLR0913 - kernels take flat arrays
    fd,
    places,
    inbox,
    rows,
    outbox,
    verdicts,
    areas,
    message,
    counts,
    stopped,
    most_ticks,
):
    """Answer requests until the connection is over; returns why (`vectored_io`).

    `places`: address of the generations, of the pages, number of pages, bytes of a page. `inbox`
    uint64 [HEAD_WORDS + 2 MOST_ROWS] holds `rows` [MOST_ROWS, 2]; `outbox` uint8 [REPLY_BYTES +
    MOST_ROWS] holds `verdicts`. `counts` grows: pages, bytes, pages that were not as asked for.
    """
    generations_at, pages_at, pages, page_bytes = places
    while True:
        areas[0, 0] = np.uint64(inbox.ctypes.data)
        areas[0, 1] = np.uint64(8 * HEAD_WORDS)
        code = receive_areas(fd, areas, 1, message, stopped, most_ticks, True)
        if code != DONE:
            return code
        asked = np.int64(inbox[0] >> _HALF)
        if not _possible(asked, inbox[1], inbox[2], page_bytes):
            return ODD
        start, end = np.int64(inbox[1]), np.int64(inbox[2])
        areas[0, 0] = np.uint64(rows.ctypes.data)
        areas[0, 1] = np.uint64(ROW_BYTES * asked)
        code = receive_areas(fd, areas, 1, message, stopped, most_ticks, False)
        if code != DONE:
            return code
        mine, said = rows[:asked], verdicts[:asked]
        good = check_rows(generations_at, pages, mine, said)
        outbox[:REPLY_BYTES].view(np.uint64)[0] = inbox[0]
        areas[0, 0] = np.uint64(outbox.ctypes.data)
        areas[0, 1] = np.uint64(REPLY_BYTES + asked)
        count = 1 + areas_of(pages_at, page_bytes, start, end, mine[:, 0], said, areas[1:])
        code = send_areas(fd, areas, count, message, stopped, most_ticks, True)
        if code != DONE:
            return code
        recheck_rows(generations_at, mine, said)
        areas[0, 0] = np.uint64(said.ctypes.data)
        areas[0, 1] = np.uint64(asked)
        code = send_areas(fd, areas, 1, message, stopped, most_ticks, False)
        if code != DONE:
            return code
        counts[0] += good
        counts[1] += good * (end - start)
        counts[2] += asked - good


@kernel
def _possible(asked, start, end, page_bytes):
    """See `frames.Request.decoded`."""
    if not 1 <= asked <= MOST_ROWS or end > np.uint64(page_bytes) or start >= end:
        return False
    first, last = np.int64(start), np.int64(end)
    if first % STRIPE_BYTES or last % STRIPE_BYTES or last - first < LEAST_BYTES:
        return False
    return asked * (last - first) <= max(MOST_REQUEST_BYTES, page_bytes)


@kernel
def ask(fd, head, rows, areas, message, stopped, most_ticks):
    """Send a request: `head` uint64 [HEAD_WORDS], `rows` uint64 [rows, 2]."""
    areas[0, 0] = np.uint64(head.ctypes.data)
    areas[0, 1] = np.uint64(8 * HEAD_WORDS)
    areas[1, 0] = np.uint64(rows.ctypes.data)
    areas[1, 1] = np.uint64(ROW_BYTES * len(rows))
    return send_areas(fd, areas, 2, message, stopped, most_ticks, False)


@kernel
def receive(  # noqa: PLR0913 - see above
    fd,
    head,
    inbox,
    before,
    after,
    areas,
    message,
    own,
    targets,
    checksums,
    verdicts,
    prove,
    stopped,
    most_ticks,
):
    """Receive the reply to `head` into the pages `targets`; `verdicts` [rows] are what came of it.

    `own`: address of our pages, bytes of a page. `inbox` uint8 holds the reply's first bytes and
    `before`, the verdicts after them. `prove`: the bytes are whole pages, compare `checksums`.
    """
    pages_at, page_bytes = own
    rows, start, end = len(targets), np.int64(head[1]), np.int64(head[2])
    areas[0, 0] = np.uint64(inbox.ctypes.data)
    areas[0, 1] = np.uint64(REPLY_BYTES + rows)
    code = receive_areas(fd, areas, 1, message, stopped, most_ticks, False)
    if code != DONE:
        return code
    if inbox[:REPLY_BYTES].view(np.uint64)[0] != head[0]:
        return ODD
    for row in range(rows):
        if before[row] != GOOD and before[row] != STALE and before[row] != IMPOSSIBLE:
            return ODD
        verdicts[row] = before[row]
    first = 0
    while first < rows:
        last = min(rows, first + max(1, _PROVEN_BYTES // (end - start)))
        some = targets[first:last]
        count = areas_of(pages_at, page_bytes, start, end, some, before[first:last], areas)
        code = receive_areas(fd, areas, count, message, stopped, most_ticks, False)
        if code != DONE:
            return code
        if prove:
            prove_rows(pages_at, page_bytes, some, checksums[first:last], verdicts[first:last])
        first = last
    areas[0, 0] = np.uint64(after.ctypes.data)
    areas[0, 1] = np.uint64(rows)
    code = receive_areas(fd, areas, 1, message, stopped, most_ticks, False)
    if code != DONE:
        return code
    for row in range(rows):
        if after[row] == OVERTAKEN and before[row] == GOOD:
            verdicts[row] = OVERTAKEN
        elif after[row] != before[row]:
            return ODD
    return DONE
