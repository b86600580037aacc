"""What a process holds: memory, descriptors, sockets."""

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Counts at one moment. `memory_bytes`: what the process alone has resident, no shared maps."""

    memory_bytes: int
    descriptors: int
    sockets: int


def resources_of(pid: int) -> Resources | None:
    """What the process holds now; None: it is gone, or another user's."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None
    links = [link for link in map(_target, descriptors) if link is not None]
    return Resources(
        memory_bytes=(int(fields[1]) - int(fields[2])) * _PAGE_BYTES,
        descriptors=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
    )


def _target(descriptor: Path) -> str | None:
    """What a descriptor is open on; None: it was closed since (the one that listed them was)."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return None


def growth(
    before: dict[int, Resources], after: dict[int, Resources], *, slack: Resources
) -> Sequence[str]:
    """One line for each count of a process, alive both times, that grew by more than `slack`."""
    lines: list[str] = []
    for pid in sorted(before.keys() & after.keys()):
        for name in ("memory_bytes", "descriptors", "sockets"):
            old, new = getattr(before[pid], name), getattr(after[pid], name)
            if new - old > getattr(slack, name):
                lines.append(f"process {pid}: {name} grew from {old} to {new}")
    return lines
