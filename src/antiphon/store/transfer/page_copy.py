"""Copying pages out of another process's memory, each one verified while it is copied."""

from array import array
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from .atomic_words import fence, load_acquire, load_word, store_release
from .generations import WORD_BYTES
from .kernel import kernel
from .xxh3 import hashing

GOOD, STALE, OVERTAKEN, CORRUPT, IMPOSSIBLE, NO_TARGET = range(6)
"""Verdicts on one page: see `mapping.Miss`. NO_TARGET: the taker's own page does not exist."""

ROW_WORDS = 4
"""Of a table: source page, generation, checksum, target page."""

_hash_copied = hashing(copies=True)
_hash_of = hashing(copies=False)


class Places(NamedTuple):
    """What stays the same between one peer and one taker: addresses, page counts, page size."""

    generations_at: int
    """The peer's uint64 per page; then its pages."""
    pages_at: int
    pages: int
    own_generations_at: int
    own_pages_at: int
    own_pages: int
    page_bytes: int


class Part(NamedTuple):
    """Bytes of every page, from `start` up to `end`: multiples of 64, and at least 256 of them.

    `last`: all others have been copied.
    """

    start: int
    end: int
    last: bool


CopyPages: TypeAlias = "Callable[[Places, array[int]], None]"
"""`copy_pages`, or what a test puts in its place."""


def copy_pages(places: Places, table: "array[int]") -> None:
    """Copy the page of each row of `table` (typecode "Q") into its target, which becomes odd.

    The first word of each row becomes its verdict. GOOD: the target holds what was sealed under
    this generation with this checksum. After any other its content means nothing. Runs without the
    interpreter lock.
    """
    copy_parts(places, table, Part(0, places.page_bytes, last=True))


def copy_parts(places: Places, table: "array[int]", part: Part) -> None:
    """Like `copy_pages`, for a part of each page only.

    GOOD after the last part means what it means there. After another: the page was not reassigned
    so far; nothing else is known of what was copied.
    """
    rows = len(table) // ROW_WORDS
    _copy_parts(*places, table.buffer_info()[0], rows, part.start, part.end, part.last)


@kernel
def _copy_parts(  # noqa: PLR0913 - plain integers cross into a kernel ten times faster than a tuple
    generations_at,
    pages_at,
    pages,
    own_generations_at,
    own_pages_at,
    own_pages,
    page_bytes,
    table,
    n,
    start,
    end,
    last,
):
    for row in range(n):
        target = load_word(table + row * ROW_WORDS * WORD_BYTES + 3 * WORD_BYTES)
        if target < own_pages:
            at = own_generations_at + WORD_BYTES * np.int64(target)
            generation = load_word(at)
            store_release(at, generation | np.uint64(1))
    fence()
    for row in range(n):
        at = table + row * ROW_WORDS * WORD_BYTES
        source, generation = load_word(at), load_word(at + WORD_BYTES)
        checksum, target = load_word(at + 2 * WORD_BYTES), load_word(at + 3 * WORD_BYTES)
        if target >= own_pages:
            verdict = NO_TARGET
        elif source >= pages or generation & np.uint64(1):
            verdict = IMPOSSIBLE
        else:
            verdict = _copy_page(
                generations_at + WORD_BYTES * np.int64(source),
                generation,
                checksum,
                pages_at + page_bytes * np.int64(source),
                own_pages_at + page_bytes * np.int64(target),
                page_bytes,
                start,
                end,
                last,
            )
        store_release(at, np.uint64(verdict))


@kernel
def _copy_page(  # noqa: PLR0913 - see above
    generation_at, generation, checksum, source, target, page_bytes, start, end, last
):
    """The reader's side of the seqlock of `generations`.

    A page that came in parts is read once more for its checksum, from where it was copied to.
    """
    if load_acquire(generation_at) != generation:
        return STALE
    copied = _hash_copied(source + start, target + start, end - start)
    fence()
    if load_acquire(generation_at) != generation:
        return OVERTAKEN
    if not last:
        return GOOD
    if end - start != page_bytes:
        copied = _hash_of(target, page_bytes)
    return GOOD if copied == checksum else CORRUPT
