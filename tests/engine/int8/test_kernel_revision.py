"""Kernels are compiled once per machine, and code for another CPU computes the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.engine import kernel_cache
from antiphon.engine.int8 import CpuLevel, cpu_levels

_SCRIPT = """
import hashlib
import numpy as np
from antiphon.engine.int8 import cpu_levels, gemm, quantize

rng = np.random.default_rng(11)
weight = quantize.pack(rng.standard_normal((50, 77)).astype(np.float32))
digest = hashlib.sha256(weight.panels.tobytes() + weight.channel_scale.tobytes())
for rows in (1, 2, 5, 33):
    x = (rng.standard_normal((rows, 77)) * np.exp(rng.standard_normal((rows, 1)))).astype("f4")
    out = np.empty((rows, 50), np.float32)
    gemm.matmul(x, weight, out)
    digest.update(out.tobytes())
level = cpu_levels()[0]
used = (gemm.KERNELS[level], quantize._quantize_rows, quantize._pack_channels)
hits = sum(sum(kernel.stats.cache_hits.values()) for kernel in used)
misses = sum(sum(kernel.stats.cache_misses.values()) for kernel in used)
print(level.value, hits, misses, digest.hexdigest())
"""


def _run(**environment: str) -> list[str]:
    source = Path(kernel_cache.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SCRIPT],
        env=os.environ | {"PYTHONPATH": str(source)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.fixture(scope="module")
def first_run():
    """What a run with this CPU's code said."""
    return _run()


def test_a_second_process_compiles_nothing(first_run):
    level, hits, misses, digest = first_run
    assert (level, int(hits) + int(misses)) == (cpu_levels()[0].value, 3)
    assert _run() == [level, "3", "0", digest]


@pytest.mark.parametrize(
    "cpu, features, level",
    [
        ("haswell", "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.2", CpuLevel.AVX2),
        ("generic", "", CpuLevel.GENERIC),
    ],
)
def test_code_for_a_smaller_cpu_computes_the_same_bits(tmp_path, first_run, cpu, features, level):
    if level not in cpu_levels():
        pytest.skip(f"this CPU lacks {level.value}")
    forced = _run(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features)
    assert forced[0] == level.value
    assert forced[3] == first_run[3]


def test_the_revision_follows_the_sources(tmp_path, monkeypatch):
    (tmp_path / "int8").mkdir()
    sources = [tmp_path / name for name in ("int8/gemm.py", *kernel_cache._BESIDE_INT8)]
    for source in sources:
        source.write_text("a = 1\n")
    monkeypatch.setattr(kernel_cache, "__file__", str(tmp_path / "kernel_cache.py"))
    seen = [kernel_cache._revision()]
    assert kernel_cache._revision() == seen[0]
    for source in sources:
        source.write_text("a = 2\n")
        seen.append(kernel_cache._revision())
    assert len(set(seen)) == len(sources) + 1
