"""Every family against transformers, and the page that says how far each is from it."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from antiphon.checkpoint import open_checkpoint
from antiphon.engine import load_llama
from antiphon.testing.family_oracle import (
    DTYPES,
    PLAIN_FORMATS,
    WIDE_FORMATS,
    Distance,
    distance,
    distances,
    engine_logits,
    oracle_logits,
    random_tokens,
)
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder

PAGE = Path(__file__).parents[2] / "docs/reference/models.md"
FORMATS = (*PLAIN_FORMATS, *WIDE_FORMATS)
ROW = re.compile(r"\| (.+) \| (.+) \| (\d\S+)" + r" \| (\S+) \| (\S+)%" * len(DTYPES) + r" \|")


@cache
def stated() -> dict[tuple[str, str, str], Distance]:
    """The page's table."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        if found := ROW.fullmatch(line):
            family, form, spread, *numbers = found.groups()
            for dtype, error, agreement in zip(DTYPES, numbers[::2], numbers[1::2], strict=True):
                rows[family, form, dtype] = Distance(
                    error=float(error), agreement=float(agreement) / 100, spread=float(spread)
                )
    return rows


def test_the_page_has_every_family_format_and_dtype() -> None:
    wanted = {(name, form, dtype) for name in FAMILY_SPECS for form in FORMATS for dtype in DTYPES}
    assert set(stated()) == wanted


def some_formats(family: str) -> tuple[str, ...]:
    """The plain ones, and two of the wide: each of those for several families, fused or stacked."""
    at = 2 * list(FAMILY_SPECS).index(family)
    return (*PLAIN_FORMATS, *(WIDE_FORMATS[(at + more) % len(WIDE_FORMATS)] for more in (0, 1)))


@pytest.mark.parametrize("family", FAMILY_SPECS)
def test_logits_are_as_close_to_transformers_as_the_page_says(family: str, tmp_path: Path) -> None:
    for form, dtype, found in distances(family, tmp_path, some_formats(family)):
        said = stated()[family, form, dtype]
        assert found.spread == pytest.approx(said.spread, abs=0.01)
        if dtype == "fp32":
            assert found.error < 1e-4
            assert found.agreement == 1
        # Another processor's BLAS adds in another order; int8 is the same everywhere.
        assert found.error <= 4 * said.error, (form, dtype)
        assert found.agreement >= said.agreement - 0.01, (form, dtype)


def test_longrope_within_its_original_context(tmp_path: Path) -> None:
    """By its short factors, as transformers chooses for so short a text."""
    spec = FAMILY_SPECS["phi3, LongRoPE"]
    folder = write_hf_folder(tmp_path / "a", spec, random_tensors(spec, seed=1))
    tokens = random_tokens(spec)[:64]
    expected = oracle_logits(folder, tokens)
    checkpoint = open_checkpoint(folder)
    short, long = (
        distance(
            engine_logits(
                load_llama(checkpoint, dtype="fp32", cache_dir=None, context_len=limit), tokens
            ),
            expected,
        )
        for limit in (64, 65)
    )
    assert short.error < 1e-4
    assert long.error > 100 * short.error


@pytest.mark.parametrize("family", ["mistral, window", "phi3", "gemma3"])
def test_control_a_window_is_felt_from_its_border_on(family: str, tmp_path: Path) -> None:
    """The oracle without windows agrees up to there, and then no more."""
    spec = FAMILY_SPECS[family]
    folder = write_hf_folder(tmp_path / "a", spec, random_tensors(spec, seed=1))
    tokens = random_tokens(spec)
    model = load_llama(open_checkpoint(folder), dtype="fp32", cache_dir=None)
    found = engine_logits(model, tokens)
    border = max(spec.windows)
    config = folder / "config.json"
    config.write_text(
        re.sub(rf'"sliding_window": {border}', '"sliding_window": 512', config.read_text())
    )
    unlimited = oracle_logits(folder, tokens)
    error = (found - unlimited).abs().amax(1)
    assert error[:border].max() < 1e-4
    assert error[border] > 1e-3
    assert torch.isfinite(error).all()
