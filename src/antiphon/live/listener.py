"""The server's socket, taken before anything slow begins."""

import resource
import socket

from antiphon.errors import ConfigError, UsageError
from antiphon.types import HttpConfig

_SPARE_FILES = 64
"""Files that the process opens besides its connections."""


def listen(config: HttpConfig) -> socket.socket:
    """A listening socket on the configured address.

    It listens from now on, so that a second server is refused at once; whoever connects while the
    model loads waits in the kernel's queue and is answered when it is there. Raises `UsageError`
    if the port is taken, `ConfigError` if there is no such address.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise ConfigError(f'http.host = "{config.host}": no such address') from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {config.port} on {config.host} can't be used ({error.strerror}): stop what "
            f"listens there, or choose another with --port"
        ) from None
    allow_open_files(config.max_connections + _SPARE_FILES)
    return listener


def allow_open_files(files: int) -> None:
    """Raise this process's soft limit of open files to `files`, as far as its hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
