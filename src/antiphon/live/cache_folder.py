"""Where converted weights are kept: one folder for the server and for Python."""

import os
from pathlib import Path

from antiphon.types import EngineConfig


def cache_folder(config: EngineConfig) -> Path:
    """`engine.cache_dir`; without it `antiphon` in $XDG_CACHE_HOME, or else in ~/.cache.

    Nothing else is read of the environment.
    """
    if config.cache_dir is not None:
        return Path(config.cache_dir)
    parent = os.environ.get("XDG_CACHE_HOME")
    return (Path(parent) if parent else Path("~/.cache").expanduser()) / "antiphon"
