"""A pull that says good holds what was offered, while another process reassigns the pages.

The law is checked against a real second process; faulty copiers break it within the same time.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from owner_process import content_of, shape_of
from region_kit import checksum, ignores_both, ignores_checksums

from antiphon.store.transfer import MappedRegion, Miss, OwnedRegion
from antiphon.store.transfer.page_copy import CopyPages, copy_pages
from antiphon.types import OfferedPage, PagePull

PAGES, PAGE_BYTES = 6, 48 << 10
LIMIT_S = 60
LAW_S = 2.0

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")


@contextmanager
def owner_process(corrupt_every: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A running owner and the descriptor of its region."""
    ours, theirs = socket.socketpair()
    script = Path(__file__).with_name("owner_process.py")
    arguments = map(str, (theirs.fileno(), PAGES, PAGE_BYTES, corrupt_every))
    command = [sys.executable, str(script), *arguments]
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            ours.settimeout(LIMIT_S)
            _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
            yield process, fd
            os.close(fd)
        finally:
            process.kill()


def offers(mapped: MappedRegion, generations: np.ndarray) -> list[OfferedPage]:
    """What the owner would offer of each page that is sealed right now."""
    made = []
    for page, generation in enumerate(generations.tolist()):
        if generation % 2 == 0:
            promised = checksum(content_of(page, generation, PAGE_BYTES))
            made.append(OfferedPage(page, generation, promised))
    return made


def wrong_pages(copy: CopyPages, corrupt_every: int, until) -> tuple[int, MappedRegion]:
    """Pull until `until(wrong, mapped)`; how many good pages were not what was offered."""
    own, wrong = OwnedRegion(shape_of(PAGES, PAGE_BYTES)), 0
    with owner_process(corrupt_every) as (_, fd):
        mapped = MappedRegion(fd, own, copy=copy)
        peek = np.memmap(f"/proc/self/fd/{fd}", np.uint64, "r", mapped.header.generations_at, PAGES)
        words = own.content.view(np.uint64).reshape(PAGES, -1)
        ends = time.monotonic() + LIMIT_S
        while not until(wrong, mapped):
            assert time.monotonic() < ends, f"{wrong} wrong, {mapped.pulled}, {mapped.missed}"
            offered = offers(mapped, peek)
            good = mapped.pull([PagePull(offer, offer.page) for offer in offered])
            for offer, is_good in zip(offered, good, strict=True):
                promised = content_of(offer.page, offer.generation, PAGE_BYTES)
                wrong += is_good and not np.array_equal(words[offer.page], promised)
        mapped.close()
    return wrong, mapped


def test_what_is_good_is_what_was_offered() -> None:
    ends = time.monotonic() + LAW_S

    def enough(wrong: int, mapped: MappedRegion) -> bool:
        """Much was pulled, every kind of trouble that must come has come, and time is over."""
        reassigned = mapped.missed[Miss.STALE] + mapped.missed[Miss.OVERTAKEN]
        seen = min(mapped.pulled // 50, mapped.missed[Miss.CORRUPT], reassigned)
        return seen >= 20 and time.monotonic() > ends

    wrong, _ = wrong_pages(copy_pages, 5, enough)
    assert wrong == 0


@pytest.mark.parametrize(("copy", "corrupt_every"), [(ignores_checksums, 5), (ignores_both, 0)])
def test_control_a_copier_that_leaves_checks_out_is_caught(
    copy: CopyPages, corrupt_every: int
) -> None:
    """Each check alone keeps torn pages out; only the checksum finds bytes that changed alone."""
    wrong, _ = wrong_pages(copy, corrupt_every, lambda wrong, mapped: wrong > 0)
    assert wrong > 0


def test_a_killed_owner_stays_readable_as_it_was() -> None:
    own = OwnedRegion(shape_of(PAGES, PAGE_BYTES))
    with owner_process() as (process, fd):
        mapped = MappedRegion(fd, own)
        process.send_signal(signal.SIGKILL)
        process.wait()
        peek = np.memmap(f"/proc/self/fd/{fd}", np.uint64, "r", mapped.header.generations_at, PAGES)
        offered = offers(mapped, peek)
        assert len(offered) >= PAGES - 1
        good = mapped.pull([PagePull(offer, offer.page) for offer in offered])
        assert all(good)
        late = MappedRegion(fd, own)  # even whoever maps it after the death
        assert late.pull([PagePull(offer, offer.page) for offer in offered]) == good
        late.close()
        mapped.close()
