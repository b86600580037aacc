"""Which memory a large run asks to have in large pages: its own, and whole pages of it."""

import os
import re
from pathlib import Path

import pytest

from antiphon.sim.fleet.large_pages import LargePages, ranges_of

MIB = 2**20
MAPS = """\
00400000-00800000 r-xp 00000000 08:01 131 /usr/bin/python3
00a00000-00e00000 rw-p 00000000 00:00 0 [heap]
01100000-01700000 rw-p 00000000 00:00 0
01800000-01900000 rw-p 00000000 00:00 0
02000000-02400000 rw-p 00000000 08:01 132 /usr/lib/libc.so
03000000-03400000 rw-s 00000000 00:01 7 /memfd:kv (deleted)
04000000-04400000 rw-p 00000000 00:00 0 [stack]
05000000-05400000 ---p 00000000 00:00 0
"""


def test_only_private_memory_of_no_file_is_asked_for_in_whole_large_pages() -> None:
    assert list(ranges_of(MAPS)) == [(0xA00000, 0xE00000), (0x1200000, 0x1600000)]


def test_a_process_finds_its_own_objects() -> None:
    kept = bytearray(64 * MIB)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert sum(end - begin for begin, end in ranges_of(maps)) >= 62 * MIB
    assert len(kept) == 64 * MIB


def test_what_is_kept_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.sim.fleet.large_pages._LEAST_BYTES", 0)
    kept = bytearray(os.urandom(16 * MIB))
    before = bytes(kept)
    pages = LargePages()
    pages.ask()
    assert kept == before
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        pytest.skip("this system gives no large pages")
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    (found,) = re.findall(r"AnonHugePages:\s+(\d+) kB", rollup)
    if not int(found):
        pytest.skip("this kernel does not give them when asked (before Linux 6.1)")
    assert int(found) * 1024 >= 8 * MIB
