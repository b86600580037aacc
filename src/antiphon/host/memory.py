"""How much memory is left, as the machine and its container count; giving back what is not used."""

import ctypes
from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that the process could still take: the machine's, or less where a cgroup says so.

    Reads Linux's /proc and /sys under `root`; where they are absent nothing is known and the
    answer is a bound that no allocation reaches.
    """
    bounds = [2**63, *_cgroup_bounds(root / "sys/fs/cgroup")]
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            bounds.append(int(rest.split()[0]) * 1024)
    return min(bounds)


def give_back_freed_memory() -> None:
    """Return what was freed, and the C library keeps, to the system: worth it once after loading.

    Does nothing where the C library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _cgroup_bounds(folder: Path) -> list[int]:
    """Limit less usage, for cgroup v2 and v1 as a container sees them.

    Usage counts file pages that the kernel gives up at need (the model's file among them): not
    those that it calls inactive.
    """
    bounds = []
    for limit_name, usage_name, stat_name, inactive in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ):
        limit, usage = _lines(folder / limit_name), _lines(folder / usage_name)
        if limit and usage and limit[0].isdigit() and usage[0].isdigit():
            held = int(usage[0]) - _counter(folder / stat_name, inactive)
            bounds.append(max(int(limit[0]) - max(held, 0), 0))
    return bounds


def _counter(path: Path, name: str) -> int:
    """A "name value" line of a file; 0 without it."""
    for line in _lines(path):
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
