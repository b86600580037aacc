"""The law that all others stand on, checked for the BLAS and the processor that run the tests."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from antiphon.engine.projection import ROW_MULTIPLE, padded_rows, project
from antiphon.errors import BugError

SHAPES = [(960, 576), (576, 1536), (3072, 576), (64, 64), (160, 96), (300, 112), (2048, 2048)]

ANY_SHAPES = """
import random
import torch
from antiphon.engine.projection import project

drawn, bad = random.Random(5), set()
for trial in range(60):
    inputs, outputs = 16 * drawn.randint(12, 256), 16 * drawn.randint(1, 64)
    generator = torch.Generator().manual_seed(trial)
    weight = torch.randn(outputs, inputs, generator=generator)
    rows = torch.randn(8 * drawn.randint(20, 40), inputs, generator=generator)
    torch.set_num_threads(1)
    whole = project(rows, weight)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in (8, 16, 24, 40, 64, 128, 152, len(rows)):
            first = drawn.randint(0, len(rows) - count)
            if not torch.equal(project(rows[first : first + count], weight), whole[first:][:count]):
                bad.add((threads, count, inputs, outputs))
print(sorted(bad))
"""


def test_a_new_process_keeps_the_law_for_any_shape_and_number_of_threads() -> None:
    """Torch is there before the engine, which says how its BLAS has to add."""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    result = subprocess.run(
        [sys.executable, "-c", ANY_SHAPES],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_a_rows_product_is_bitwise_the_same_in_any_batch(
    outputs: int, inputs: int, threads: int, torch_threads: Callable[[int], None]
) -> None:
    generator = torch.Generator().manual_seed(outputs + inputs)
    weight = torch.randn(outputs, inputs, generator=generator)
    bias = torch.randn(outputs, generator=generator)
    rows = torch.randn(520, inputs, generator=generator)
    torch_threads(1)
    whole = project(rows, weight, bias)
    torch_threads(threads)
    for count in (8, 16, 24, 40, 64, 104, 256, 512):
        for first in (0, 8, 256):
            part = project(rows[first : first + count].clone(), weight, bias)
            assert torch.equal(part, whole[first : first + count])


def test_padding() -> None:
    assert [padded_rows(rows) for rows in (0, 1, 7, 8, 9, 16)] == [8, 8, 8, 8, 16, 16]
    assert padded_rows(5) % ROW_MULTIPLE == 0


@pytest.mark.parametrize("rows", [0, 1, 7, 12])
def test_other_numbers_of_rows_are_refused(rows: int) -> None:
    with pytest.raises(BugError, match=f"{rows} rows"):
        project(torch.zeros(rows, 16), torch.zeros(4, 16))
