"""Kits of this folder, of `store` and of the adapters serve the tests of all."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from link_kit import PuppetWorker

_HERE = Path(__file__).parent
sys.path[:0] = [
    str(_HERE),
    *(str(_HERE / sub) for sub in ("store", "network")),
    str(_HERE.parent / "adapters"),
]


@pytest.fixture
def on_the_thread(monkeypatch) -> None:
    """Blocks of tests are small: copies would be made where they are asked for."""
    from antiphon.live import store_fetch

    monkeypatch.setattr(store_fetch, "SHORT_COPY_S", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Private, as whoever listens in it wants it."""
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def worker() -> "PuppetWorker":
    """One that a test speaks for."""
    from link_kit import PuppetWorker, worker_info

    return PuppetWorker(worker_info())
