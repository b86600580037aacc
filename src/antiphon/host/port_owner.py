"""Which process of this host listens on a port, as far as this user may see."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from antiphon.core.host_names import format_host_port

_LISTENS = "0A"
_MOST_CHARS = 80
_Address = IPv4Address | IPv6Address


def port_owner(address: str, port: int, proc: Path = Path("/proc")) -> str | None:
    """Whoever listens on that TCP port of that address (a name: of any), as "`command` (pid N)".

    None: nobody, or somebody whom this user can't see, or this system has no `/proc`."""
    try:
        wanted = ip_address(address)
    except ValueError:
        wanted = None
    sockets = {f"socket:[{inode}]" for inode in _listening(wanted, port, proc)}
    if not sockets:
        return None
    for process in sorted(proc.glob("[0-9]*"), key=lambda one: int(one.name)):
        if _has_one(process, sockets):
            return f"`{_command(process)}` (pid {process.name})"
    return None


def taken_port(address: str, port: int) -> str:
    """What to say of a port that could not be had, since somebody listens there, and the remedy."""
    owner = port_owner(address, port) or "another process"
    where = format_host_port(address, port)
    return f"port {where} is taken by {owner}: stop that, or choose another port"


def _listening(wanted: _Address | None, port: int, proc: Path) -> Iterator[str]:
    """Inodes of the sockets that listen there, or at all addresses."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                where, _, number = fields[1].partition(":")
                here = fields[3] == _LISTENS and int(number, 16) == port
                if here and _same(_address(where), wanted):
                    yield fields[9]


def _address(text: str) -> _Address:
    """The system writes words of 32 bits as numbers of its own byte order."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    step = -1 if sys.byteorder == "little" else 1
    return ip_address(b"".join(word[::step] for word in words))


def _same(found: _Address, wanted: _Address | None) -> bool:
    return wanted is None or found == wanted or found.is_unspecified or wanted.is_unspecified


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
