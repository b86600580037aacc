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


CopyPages: TypeAlias = "Callable[[Places, array[int]], None]"
"""`copy_pages`, or what a test puts in its place."""


def copy_pages(places: Places, table: "array[int]") -> None:
    """Copy the page of each row of `table` (typecode "Q") into its target, which becomes odd.

    The first word of each row becomes its verdict. GOOD: the target holds what was sealed under
    this generation with this checksum. After any other its content means nothing. Runs without the
    interpreter lock.
    """
    _copy_pages(*places, table.buffer_info()[0], len(table) // ROW_WORDS)


@kernel
def _copy_pages(  # noqa: PLR0913 - plain integers cross into a kernel ten times faster than a tuple
    generations_at,
    pages_at,
    pages,
    own_generations_at,
    own_pages_at,
    own_pages,
    page_bytes,
    table,
    n,
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
            )
        store_release(at, np.uint64(verdict))


@kernel
def _copy_page(generation_at, generation, checksum, source, target, page_bytes):
    """The reader's side of the seqlock of `generations`."""
    if load_acquire(generation_at) != generation:
        return STALE
    copied = _hash_copied(source, target, page_bytes)
    fence()
    if load_acquire(generation_at) != generation:
        return OVERTAKEN
    return GOOD if copied == checksum else CORRUPT
