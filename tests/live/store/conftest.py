"""What all tests of the store need."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Private, as a store wants it."""
    tmp_path.chmod(0o700)
    return tmp_path
