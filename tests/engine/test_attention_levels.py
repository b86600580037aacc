"""Attention compiled for another CPU computes the same bits, in tiles of other shapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.engine.cpu_level import CpuLevel, cpu_levels

CODE = """
import hashlib
import numpy as np
import torch
from antiphon.engine import KvDtype, KvLayout, KvMemory
from antiphon.engine.attention import Geometry, attend, scratch_floats
from antiphon.engine.attention_tile import WIDTHS
from antiphon.engine.batch import Batch, PageTable, Run

torch.manual_seed(3)
digest = hashlib.sha256()
for width in (48, 80):
    for kv_dtype in KvDtype:
        layout = KvLayout(layers=2, kv_heads=2, head_width=width, page_tokens=5, dtype=kv_dtype)
        memory = KvMemory(layout, 100)
        memory.flat.normal_()
        table = PageTable()
        table.extend(0, range(60))
        spans = [(0, 70), (150, 1), (97, 3)]
        runs = [Run(tokens=[0] * n, start=s, table=table, sampled=True) for s, n in spans]
        batch = Batch.of(runs, layout)
        tables = batch.tables[0]
        geometry = Geometry(10, 2, width, width, 5, layout.page_stride, width**-0.5)
        qkv, out = torch.randn(74, 14 * width), torch.zeros(74, 10 * width)
        for window in (0, 40):
            attend(qkv.numpy(), out.numpy(), memory.elements, tables, batch.blocks, geometry,
                   1, window, torch.empty(scratch_floats(geometry)).numpy(), (0, 1))
            assert torch.isfinite(out).all()
            digest.update(out.numpy().tobytes())
print(WIDTHS, digest.hexdigest(), sep="|")
"""


def shapes_and_digest(**environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().split("|")


def test_code_for_avx2_computes_the_same_bits(tmp_path: Path) -> None:
    if cpu_levels()[0] is not CpuLevel.AVX512:
        pytest.skip("this CPU's own code is the code for AVX2, or has less")
    here = shapes_and_digest()
    features = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.2"
    held = shapes_and_digest(
        NUMBA_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=features
    )
    assert held[0] != here[0]
    assert held[1] == here[1]
