"""Numbers in sentences: no exponents, in any message."""

import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.number_text import number_text

SOURCE = Path(__file__).parents[2] / "src/antiphon"
TOLD = ("bench", "cli", "core/config.py", "core/faults", "report", "runs", "sim", "workload")
"""Whose numbers come from users: they may be of any size."""


@given(st.floats(1e-9, 1e20) | st.integers(-(10**30), 10**30), st.integers(1, 9))
def test_a_number_is_plain_and_as_exact_as_asked_for(value: float, digits: int) -> None:
    text = number_text(value, digits)
    assert re.fullmatch(r"-?\d+(\.\d*[1-9])?", text)
    assert float(text) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (100_000.0, "100000"),
        (1_048_576, "1048576"),
        (2**62, str(2**62)),
        (0.00005, "0.00005"),
        (9.9999999, "10"),
        (2.5, "2.5"),
        (-0.125, "-0.125"),
        (inf, "inf"),
    ],
)
def test_examples(value: float, text: str) -> None:
    assert number_text(value) == text


def test_messages_write_numbers_so() -> None:
    files = [
        file
        for part in map(SOURCE.joinpath, TOLD)
        for file in (part.rglob("*.py") if part.is_dir() else [part])
    ]
    assert len(files) > 50
    for file in files:
        assert not re.search(r":(\.\d+)?g\}", file.read_text()), file
