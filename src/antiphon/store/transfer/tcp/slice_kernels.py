"""What is done for each page of a slice, compiled: generations, areas of memory, checksums.

Verdicts are those of `page_copy`, one uint8 a row. Rows of a request are uint64 [rows, 2]: page and
generation.
"""

import numpy as np

from antiphon.store.transfer.atomic_words import fence, load_acquire
from antiphon.store.transfer.kernel import kernel
from antiphon.store.transfer.page_copy import CORRUPT, GOOD, IMPOSSIBLE, OVERTAKEN, STALE
from antiphon.store.transfer.xxh3 import hashing

_WORD = 8
_hash_of = hashing(copies=False)


@kernel
def check_rows(generations_at, pages, rows, verdicts):
    """The owner's side before it sends: GOOD, STALE or IMPOSSIBLE. Returns how many are GOOD.

    Generation 0 is of a page that nobody has written yet: there may be no memory behind it.
    """
    good = 0
    for row in range(len(rows)):
        page, generation = rows[row, 0], rows[row, 1]
        if page >= pages or generation == np.uint64(0) or generation & np.uint64(1):
            verdicts[row] = IMPOSSIBLE
        elif load_acquire(generations_at + _WORD * np.int64(page)) != generation:
            verdicts[row] = STALE
        else:
            verdicts[row] = GOOD
            good += 1
    return good


@kernel
def recheck_rows(generations_at, rows, verdicts):
    """And after: OVERTAKEN for a page that was reassigned while it was read."""
    fence()
    for row in range(len(rows)):
        if verdicts[row] == GOOD:
            at = generations_at + _WORD * np.int64(rows[row, 0])
            if load_acquire(at) != rows[row, 1]:
                verdicts[row] = OVERTAKEN


@kernel
def areas_of(pages_at, page_bytes, start, end, pages, verdicts, areas):
    """Bytes `start` … `end` of each GOOD page into `areas` [rows, 2] of address and bytes.

    Pages that follow each other in memory are one area. Returns how many areas there are.
    """
    count = 0
    expected = np.int64(-1)
    size = np.int64(end - start)
    for row in range(len(pages)):
        if verdicts[row] != GOOD:
            continue
        at = np.int64(pages_at + page_bytes * np.int64(pages[row]) + start)
        if at == expected:
            areas[count - 1, 1] += np.uint64(size)
        else:
            areas[count, 0] = np.uint64(at)
            areas[count, 1] = np.uint64(size)
            count += 1
        expected = at + size
    return count


@kernel
def prove_rows(pages_at, page_bytes, pages, checksums, verdicts):
    """The taker's side: CORRUPT for a GOOD page that has not the checksum it should have."""
    for row in range(len(pages)):
        if verdicts[row] == GOOD:
            at = np.int64(pages_at + page_bytes * np.int64(pages[row]))
            if _hash_of(at, page_bytes) != checksums[row]:
                verdicts[row] = CORRUPT


@kernel
def blame_rows(came, verdicts):
    """Join the owner's verdicts of one slice into those of the pull."""
    for row in range(len(came)):
        if verdicts[row] == GOOD:
            verdicts[row] = came[row]
