"""Unix sockets that nobody but this user can reach, and where those of a cluster lie."""

import errno
import os
import socket
import stat
from pathlib import Path

from antiphon.errors import PeerError, UsageError
from antiphon.host import open_folder_remedy
from antiphon.types import StoreConfig, WorkerId

_FOLDER_MODE = 0o700
_SOCKET_MODE = 0o600
_MAX_PATH_BYTES = 107
"""What `sockaddr_un` holds on Linux, less the zero at its end."""
_BACKLOG = 128
GATEWAY_SOCKET = "gateway.sock"
STORE_SOCKET = "store.sock"


class SocketTakenError(UsageError):
    """Another process listens at a socket that was to be made."""


def private_folder(path: Path, what: str = "socket folder") -> Path:
    """Make the folder if it is not there (its parent must be). Returns its absolute path.

    Raises `UsageError`, in which the folder is called `what`, if others could enter it: it must be
    a folder of this user, mode 0700.
    """
    try:
        path.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        facts = path.lstat()
    except FileExistsError:
        raise UsageError(f"{what} {path}: it is a file: name a folder") from None
    except OSError as error:
        raise UsageError(f"{what} {path}: {error.strerror}") from None
    if not stat.S_ISDIR(facts.st_mode):
        raise UsageError(f"{what} {path}: it is no folder")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"{what} {path}: it belongs to another user")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise UsageError(f"{what} {path}: others can enter it; {open_folder_remedy(path)}")
    return path.absolute()


def gateway_socket(folder: Path) -> Path:
    """Where workers join."""
    return folder / GATEWAY_SOCKET


def store_socket(folder: Path, store: StoreConfig) -> Path | None:
    """Where workers and gateway reach the KV store: the cluster's own, or one that was named.

    None: there is to be none.
    """
    if not store.enabled:
        return None
    return folder / STORE_SOCKET if store.socket is None else Path(store.socket).absolute()


def check_store_socket(store: StoreConfig) -> None:
    """Whether the store that was named can ever be reached there; it need not be there yet.

    Raises `UsageError`: something else lies at its path, or no socket's path can be so long.
    """
    if not store.enabled or store.socket is None:
        return
    path = Path(store.socket).absolute()
    named = f"store.socket (--store) {path}"
    remedy = f"name the {STORE_SOCKET} of an `antiphon store`, or say on or off"
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise UsageError(
            f"{named}: longer than the {_MAX_PATH_BYTES} bytes that a socket's path can have: "
            f"start `antiphon store` with a shorter --socket-dir"
        )
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}: {remedy}") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{named}: is a folder, not a socket: {remedy}")
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"{named}: is a file, not a socket: {remedy}")


def data_socket(folder: Path, worker: WorkerId) -> Path:
    """Where other workers reach this worker's leases and memory, whatever life it is in.

    Raises `PeerError` for what is no name but leads out of the folder.
    """
    path = folder / f"{worker}.data.sock"
    if path.parent != folder:
        raise PeerError(f"{worker!r:.80} is no worker's name")
    return path


def listen(path: Path) -> socket.socket:
    """A listening socket in a private folder; a file that a dead process left is replaced.

    Non-blocking. Raises `UsageError` if the folder is not private or the path is too long, and
    `SocketTakenError` if somebody listens there already.
    """
    private_folder(path.parent)
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise UsageError(f"socket {path}: longer than {_MAX_PATH_BYTES} bytes; shorten the folder")
    _remove_dead(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(os.fspath(path))
        path.chmod(_SOCKET_MODE)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(f"socket {path}: {error.strerror}") from None
    return listener


def close_listener(listener: socket.socket, path: Path, inode: int) -> None:
    """Close it, and remove its file unless somebody else's is there by now."""
    listener.close()
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        pass


def _remove_dead(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise UsageError(f"socket {path}: a file that is no socket is in the way")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        found = probe.connect_ex(os.fspath(path))
    if found != errno.ECONNREFUSED:
        raise SocketTakenError(f"socket {path}: another process listens there")
    path.unlink(missing_ok=True)
