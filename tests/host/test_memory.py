"""Available memory: the machine's, or what its container leaves of it."""

import ctypes
import os
from pathlib import Path

import pytest

from antiphon.host import available_bytes, give_back_freed_memory


def machine(root: Path, available_kib: int, cgroup: dict[str, str]) -> Path:
    (root / "proc").mkdir()
    meminfo = f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n"
    (root / "proc/meminfo").write_text(meminfo)
    for name, value in cgroup.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n")
    return root


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ({}, 1000 * 1024),
        ({"memory.max": "max", "memory.current": "5"}, 1000 * 1024),
        ({"memory.max": "500000", "memory.current": "100000"}, 400000),
        ({"memory.max": "100", "memory.current": "200"}, 0),
        (
            {"memory/memory.limit_in_bytes": "9000", "memory/memory.usage_in_bytes": "1000"},
            8000,
        ),
        ({"memory.max": "9000000000", "memory.current": "0"}, 1000 * 1024),
        (
            {
                "memory.max": "500000",
                "memory.current": "450000",
                "memory.stat": "anon 50000\nfile 400000\ninactive_file 390000",
            },
            440000,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "9000",
                "memory/memory.usage_in_bytes": "8000",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 6000",
            },
            7000,
        ),
    ],
)
def test_available_memory_heeds_the_container(
    tmp_path: Path, cgroup: dict[str, str], expected: int
) -> None:
    assert available_bytes(machine(tmp_path, 1000, cgroup)) == expected


def test_where_nothing_is_known_nothing_is_refused(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == 2**63


def test_giving_back_freed_memory_shrinks_the_process() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    # Small enough for the heap; the last one stays, so that the heap can't shrink by itself.
    blocks = [ctypes.c_void_p(libc.malloc(100_000)) for _ in range(1000)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks[:-1]:
        libc.free(block)
    before = resident()
    give_back_freed_memory()
    after = resident()
    libc.free(blocks[-1])
    assert (before - after) * os.sysconf("SC_PAGE_SIZE") > 50_000_000
