"""Kits of this folder, of `store` and of the adapters serve the tests of all."""

import sys
from pathlib import Path

import pytest

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
