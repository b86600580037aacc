"""The servers of this user on this machine: how `antiphon status` finds one without being told.

Each has a file in the user's runtime folder, locked for as long as the server's supervisor lives,
and beside it, unless configured otherwise, the folder of its sockets. A file that nobody holds the
lock of is what a killed server left: whoever meets it clears it away.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from antiphon.errors import UsageError

from .socket_folder import private_folder

_SUFFIX = ".json"
_MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A running server. `sockets` is the folder of its sockets, `pid` its supervisor."""

    pid: int
    url: str
    sockets: str


def runtime_folder() -> Path:
    """`antiphon` in $XDG_RUNTIME_DIR, or else `antiphon-UID` in the folder of temporary files.

    Made if it is not there; nothing else is read of the environment. Raises `UsageError` if it is
    not private to this user.
    """
    parent = os.environ.get("XDG_RUNTIME_DIR")
    if parent and Path(parent).is_dir():
        return private_folder(Path(parent) / "antiphon")
    return private_folder(Path(tempfile.gettempdir()) / f"antiphon-{os.getuid()}")


class Registration:
    """A server's entry, and the folder of its sockets. Use as `with registered(…) as entry`."""

    def __init__(self, file: Path, sockets: Path) -> None:
        self.sockets = sockets
        self._file = file
        self._descriptor: int | None = None

    def publish(self, url: str) -> None:
        """From now on the server can be found."""
        server = LocalServer(pid=os.getpid(), url=url, sockets=str(self.sockets))
        new = self._file.with_suffix(".new")
        self._descriptor = os.open(
            new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode=0o600
        )
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, msgspec.json.encode(server))
        new.rename(self._file)

    def withdraw(self) -> None:
        """The server can't be found any more."""
        self._file.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)


@contextlib.contextmanager
def registered(socket_dir: str | None) -> Iterator[Registration]:
    """A new entry; its sockets lie in `socket_dir`, or in a folder that is removed at the end."""
    folder = runtime_folder()
    running_servers(folder)
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    sockets = private_folder(Path(socket_dir) if socket_dir else folder / name)
    entry = Registration(folder / f"{name}{_SUFFIX}", sockets)
    try:
        yield entry
    finally:
        entry.withdraw()
        if socket_dir is None:
            shutil.rmtree(sockets, ignore_errors=True)


def running_servers(folder: Path | None = None) -> tuple[LocalServer, ...]:
    """All that run, by process id. Clears away what killed ones left."""
    found: list[LocalServer] = []
    for file in sorted((folder or runtime_folder()).glob(f"*{_SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):
            if (server := _read(file)) is not None:
                found.append(server)
    return tuple(sorted(found, key=lambda server: (server.pid, server.sockets)))


def _read(file: Path) -> LocalServer | None:
    """The server of a file; None if there is none any more."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return msgspec.json.decode(os.read(descriptor, _MAX_FILE_BYTES), type=LocalServer)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{file}: can't be read ({error}): remove it") from None
    else:
        file.unlink(missing_ok=True)
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        return None
    finally:
        os.close(descriptor)
