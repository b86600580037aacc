"""Processes that fill the same cache of compiled code take turns."""

import fcntl
import os
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile

from antiphon.host import shared


def is_locked(folder: Path) -> bool:
    """Whether another process that wants the lock on it has to wait."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def total(values):
    result = values[0]
    for value in values[1:]:
        result += value
    return result


@pytest.mark.parametrize("alone", [True, False], ids=["shared", "control"])
def test_numba_reads_and_writes_its_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    seen: list[tuple[str, bool]] = []
    for name in ("load", "save"):
        own = getattr(IndexDataCacheFile, name)

        def spy(self: Any, *arguments: Any, own: Any = own, name: str = name) -> Any:
            folder = Path(self._cache_path)
            seen.append((name, is_locked(folder) if folder.exists() else False))
            return own(self, *arguments)

        monkeypatch.setattr(IndexDataCacheFile, name, spy)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for _ in range(2):
        compiled = numba.njit(cache=True)(total)
        compiled = shared(compiled) if alone else compiled
        assert compiled(np.arange(4.0)) == 6.0
        assert compiled(np.arange(4)) == 6
    assert seen == [(name, alone) for name in ("load", "save") * 2 + ("load",) * 2]
    assert sum(compiled.stats.cache_hits.values()) == 2
    assert not is_locked(Path(compiled.stats.cache_path))


class Refused:
    """A cache in a folder that can't be made."""

    def __init__(self, path: Path) -> None:
        self.cache_path = str(path)

    def load_overload(self, signature: str, target: str) -> str:
        return f"{signature} for {target}"


def test_where_there_can_be_no_lock_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    class Compiled:
        _cache: Any = Refused(tmp_path / "file/folder")

    assert shared(Compiled())._cache.load_overload("int64", "cpu") == "int64 for cpu"
