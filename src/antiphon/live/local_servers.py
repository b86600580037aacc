"""The servers of this user on this machine: how `antiphon status` finds one without being told.

Each has a folder in the user's runtime folder, locked for as long as the server's supervisor lives:
in it lie, unless configured otherwise, its sockets, and a file that says where it is found. One
that nobody holds the lock of is what a killed server left: whoever meets it clears it away.
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

_NAMES = "*-" + 8 * "[0-9a-f]"
_FILE = "server.json"
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

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.sockets = sockets
        self._folder = folder

    def publish(self, url: str) -> None:
        """From now on the server can be found."""
        server = LocalServer(pid=os.getpid(), url=url, sockets=str(self.sockets))
        new = self._folder / f"{_FILE}.new"
        new.write_bytes(msgspec.json.encode(server))
        new.rename(self._folder / _FILE)


@contextlib.contextmanager
def registered(socket_dir: str | None) -> Iterator[Registration]:
    """A new entry, which ends with the block; its sockets lie in `socket_dir`, or in itself."""
    runtime = runtime_folder()
    running_servers(runtime)
    folder, descriptor = _locked_folder(runtime)
    try:
        yield Registration(folder, private_folder(Path(socket_dir)) if socket_dir else folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def running_servers(runtime: Path | None = None) -> tuple[LocalServer, ...]:
    """All that run, by process id. Clears away what killed ones left."""
    found: list[LocalServer] = []
    for folder in sorted((runtime or runtime_folder()).glob(_NAMES)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if _in_use(folder):
                found.append(_read(folder / _FILE))
    return tuple(sorted(found, key=lambda server: (server.pid, server.sockets)))


def _locked_folder(runtime: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        folder = runtime / f"{os.getpid()}-{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise UsageError(f"socket folder {folder}: {error.strerror}") from None
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)  # somebody met it before it was locked, and cleared it away


def _in_use(folder: Path) -> bool:
    """Whether its server lives; if not, it is removed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(file: Path) -> LocalServer:
    """Raises `FileNotFoundError` if the server has not said yet, or says no more, where it is."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return msgspec.json.decode(os.read(descriptor, _MAX_FILE_BYTES), type=LocalServer)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file}: can't be read ({error}): remove it") from None
    finally:
        os.close(descriptor)
