"""What all tests of the store need."""

import pytest


@pytest.fixture(autouse=True)
def own_runtime_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores without keys meet in this user's runtime folder: each test has its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
