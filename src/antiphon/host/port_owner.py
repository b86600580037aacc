"""Which process of this host listens on a port, as far as this user may see."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"
_MOST_CHARS = 60


def port_owner(port: int, proc: Path = Path("/proc")) -> str | None:
    """Whoever listens on that TCP port, as "`command line` (pid N)"; None: nobody, or somebody
    whom this user can't see, or this system has no `/proc`."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return None
    for process in sorted(proc.glob("[0-9]*"), key=lambda one: int(one.name)):
        if _has_one(process, sockets):
            return f"`{_command(process)}` (pid {process.name})"
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Inodes of the sockets that listen there, over IPv4 or IPv6."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _has_one(process: Path, sockets: set[str]) -> bool:
    with suppress(OSError):  # it is another user's, or has ended
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) in sockets:
                    return True
    return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        words = b""
    text = "".join(one if one.isprintable() else "?" for one in words.decode(errors="replace"))
    return text.strip()[:_MOST_CHARS] or "a process"
