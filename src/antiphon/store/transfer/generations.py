"""Page generations: how a reader without a lock knows that a page is still what was offered.

    written ──► odd          sealed ──► even          written again (reassigned) ──► odd …

A seqlock (Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012) per
page, whose writer never waits. A reader compares before and after its copy: an odd number is being
written, another even number is other content. It does not change when a lease ends.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from antiphon.errors import BugError
from antiphon.types import OfferedPage, PageId

from .atomic_words import fence, load_acquire, store_release
from .kernel import kernel
from .xxh3 import hashing

Words = npt.NDArray[np.uint64]
Pages = npt.NDArray[np.int64]

WORD_BYTES = 8
_NEVER = 1
"""An odd generation: no checksum belongs to it."""

_hash_of = hashing(copies=False)


@kernel
def _make_odd(generations_at, pages, count):
    """Make even words of `pages` odd, before anything is written to them.

    Stops at the first of `pages` that is not in 0 … `count` - 1; returns how many were done.
    """
    for done, page in enumerate(pages):
        if not 0 <= page < count:
            return done
        at = generations_at + WORD_BYTES * page
        store_release(at, load_acquire(at) | np.uint64(1))
    fence()
    return len(pages)


@kernel
def _make_even(generations_at, pages_at, page_bytes, pages, checksums, hashed_at):
    """Make the words of `pages` even. `checksums` [all] hold at the generations in `hashed_at`."""
    for page in pages:
        at = generations_at + WORD_BYTES * page
        generation = load_acquire(at)
        generation += generation & np.uint64(1)
        if hashed_at[page] != generation:
            checksums[page] = _hash_of(pages_at + page * page_bytes, page_bytes)
            hashed_at[page] = generation
        store_release(at, generation)


@kernel
def _hashed(at, size):
    """XXH3-64 of bytes, without the interpreter lock."""
    return _hash_of(at, size)


class PageGenerations:
    """The owner's side: says when pages are about to change and when they are complete.

    Calls about different pages may come from different threads; those about one page come one after
    another, which its single owner at a time (a sequence, a lease) sees to.
    """

    def __init__(self, generations: Words, content: npt.NDArray[np.uint8], page_bytes: int) -> None:
        """`generations` [pages] and `content` [pages * page_bytes] lie in shared memory."""
        self._memory = generations, content  # lives as long as its addresses are used
        self._generations_at: int = generations.ctypes.data
        self._content_at: int = content.ctypes.data
        self._page_bytes = page_bytes
        self._checksums = np.zeros(len(generations), np.uint64)
        self._hashed_at = np.full(len(generations), _NEVER, np.uint64)

    def begin_write(self, pages: Sequence[PageId] | Pages) -> None:
        """Make `pages` odd, before the first write after they were reassigned; each may repeat.

        Pages that are odd already stay as they are: whoever writes may ask before every write.
        """
        listed = np.asarray(pages, np.int64)
        done = _make_odd(self._generations_at, listed, len(self._hashed_at))
        if done < len(listed):
            raise BugError(f"page {listed[done]} does not exist: there are {len(self._hashed_at)}")

    def seal(self, pages: Sequence[PageId]) -> tuple[OfferedPage, ...]:
        """Make `pages` even; nobody writes them any more until they are reassigned.

        Reads each page's bytes once, at about 30 GB/s, without the interpreter lock; a page that
        was sealed before and not written since costs nothing.
        """
        listed = np.asarray(pages, np.int64)
        if len(listed) and not 0 <= listed.min() <= listed.max() < len(self._hashed_at):
            raise BugError(f"of pages {pages} not all exist: there are {len(self._hashed_at)}")
        _make_even(
            self._generations_at,
            self._content_at,
            self._page_bytes,
            listed,
            self._checksums,
            self._hashed_at,
        )
        columns = (listed, self._hashed_at[listed], self._checksums[listed])
        return tuple(map(OfferedPage, *(column.tolist() for column in columns)))

    def intact(self, page: OfferedPage) -> bool:
        """Whether a sealed page still has its generation and its bytes; reads them."""
        if int(self._memory[0][page.page]) != page.generation:
            return False
        at = self._content_at + page.page * self._page_bytes
        return int(_hashed(at, self._page_bytes)) == page.checksum
