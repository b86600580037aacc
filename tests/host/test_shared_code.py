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


def held(folder: Path) -> str:
    """Who has to wait that wants the lock on it: all, those who want it alone, or nobody."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for kind, waits in ((fcntl.LOCK_SH, "all"), (fcntl.LOCK_EX, "writers")):
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return waits
    finally:
        os.close(descriptor)
    return "nobody"


def total(values):
    result = values[0]
    for value in values[1:]:
        result += value
    return result


@pytest.mark.parametrize("in_turns", [True, False], ids=["shared", "control"])
def test_numba_writes_its_files_alone_and_reads_them_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_turns: bool
) -> None:
    """A server that starts does not wait for one that loads what it loads, too."""
    seen: list[tuple[str, str]] = []
    for name in ("load", "save"):
        own = getattr(IndexDataCacheFile, name)

        def spy(self: Any, *arguments: Any, own: Any = own, name: str = name) -> Any:
            folder = Path(self._cache_path)
            seen.append((name, held(folder) if folder.exists() else "nobody"))
            return own(self, *arguments)

        monkeypatch.setattr(IndexDataCacheFile, name, spy)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for _ in range(2):
        compiled = numba.njit(cache=True)(total)
        compiled = shared(compiled) if in_turns else compiled
        assert compiled(np.arange(4.0)) == 6.0
        assert compiled(np.arange(4)) == 6
    waits = {"load": "writers", "save": "all"} if in_turns else {}
    calls = ("load", "save") * 2 + ("load",) * 2
    assert seen == [(name, waits.get(name, "nobody")) for name in calls]
    assert sum(compiled.stats.cache_hits.values()) == 2
    assert held(Path(compiled.stats.cache_path)) == "nobody"


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
