"""One tiny model in both formats, written once; tests damage copies of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from antiphon.checkpoint import ModelSpec, open_checkpoint
from antiphon.errors import ModelFileError
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf, write_hf_folder

Refusal = Callable[[Path], str]


@pytest.fixture(scope="session")
def tiny_spec() -> ModelSpec:
    return TINY_SPEC


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_gguf(path, TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    return write_hf_folder(tmp_path / "tiny", TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture
def edit_config(tiny_folder: Path) -> Callable[..., Path]:
    """Set keys of the tiny folder's config.json; a value of `...` removes the key."""

    def edit(**changes: object) -> Path:
        path = tiny_folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
        return tiny_folder

    return edit


@pytest.fixture
def refusal() -> Refusal:
    """Open a checkpoint that must be refused; returns the error's one line."""

    def refused(path: Path) -> str:
        with pytest.raises(ModelFileError) as caught:
            open_checkpoint(path)
        line = str(caught.value)
        assert "\n" not in line
        return line

    return refused
