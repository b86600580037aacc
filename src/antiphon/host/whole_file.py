"""Files that are only ever seen whole."""

import os
from pathlib import Path

from antiphon.errors import UsageError


def write_whole(path: Path, content: bytes, *, makes_folder: bool = False) -> None:
    """Write `path` beside its place, then rename it: it is there whole, or as it was before.

    `makes_folder`: its folder too, where there is none. Raises `UsageError` that names `path` if
    that can't be; nothing is left beside it then.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror or error}") from None
