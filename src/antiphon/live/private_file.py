"""Files that hold what people wrote: only this user can read them."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from antiphon.errors import ConfigError


@contextlib.contextmanager
def private_file(path: Path, *, key: str, append: bool = False) -> Iterator[BinaryIO]:
    """The file of configuration key `key`, open for writing: empty, or at its end.

    Nobody else can read it, whoever made it. Links are not followed: a prepared one would choose
    what is overwritten. What is no regular file (a pipe, a device) stays as it is. Raises
    `ConfigError` if it can't be written.
    """
    try:
        descriptor = _opened(path, append)
        file = os.fdopen(descriptor, "ab" if append else "wb")
    except OSError as error:
        raise ConfigError(f'{key} = "{path}": can\'t be written ({error.strerror})') from None
    with file:
        yield file


def _opened(path: Path, append: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
            if not append:
                os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
