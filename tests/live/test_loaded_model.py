"""From a configuration to a model that is ready: limits that follow from it."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.config import build
from antiphon.core.validation import resolve_sampling
from antiphon.errors import ClientError
from antiphon.live.loaded_model import LoadedModel, load_model
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.types import SamplingParams

SPEC = replace(TINY_SPEC, context_len=8192)


def loaded(folder: Path, memory: str, **model: object) -> LoadedModel:
    write_hf_folder(folder / "tiny", SPEC, random_tensors(SPEC, seed=1))
    values = {
        "model": {"name": str(folder / "tiny"), **model},
        "kv": {"memory_bytes": memory},
        "engine": {"cache_dir": str(folder / "cache")},
    }
    return load_model(build(values), lambda line: None)


def test_memory_smaller_than_the_context_is_the_limit_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = loaded(tmp_path, "1MiB")
    view = model.scheduler.view(0.0)
    assert model.max_model_len == view.total_pages * 16 == model.scheduler.max_model_len < 8192
    (warning,) = (line for line in caplog.records if line.levelno == logging.WARNING)
    assert str(model.max_model_len) in warning.getMessage()
    assert "--kv-memory" in warning.getMessage()
    with pytest.raises(ClientError, match=f"the context is {model.max_model_len}"):
        resolve_sampling(
            SamplingParams(max_tokens=5000),
            prompt_len=10,
            max_model_len=model.max_model_len,
            seed=0,
        )


def test_a_limit_that_fits_stays_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = loaded(tmp_path, "1MiB", max_model_len=512)
    assert model.max_model_len == model.scheduler.max_model_len == 512
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]
