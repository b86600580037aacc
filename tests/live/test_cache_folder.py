from pathlib import Path

import pytest

from antiphon.live.cache_folder import cache_folder
from antiphon.types import EngineConfig


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("XDG_CACHE_HOME")
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder(EngineConfig()) == Path("/home/me/.cache/antiphon")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder(EngineConfig()) == Path("/somewhere/antiphon")
    assert cache_folder(EngineConfig(cache_dir="/mine")) == Path("/mine")
