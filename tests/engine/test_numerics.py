"""The numerics id names what bits depend on."""

import os
import subprocess
import sys

import torch

from antiphon.checkpoint import LongRopeScaling
from antiphon.engine import int8
from antiphon.engine.cpu_level import CpuLevel, cpu_levels
from antiphon.engine.kv_memory import KvDtype
from antiphon.engine.mkl_mode import mode_name, strict_mode
from antiphon.engine.numerics import KERNEL_REVISION, numerics_id
from antiphon.engine.processor import processor_maker
from antiphon.engine.rope import rotation_table, runs_long
from antiphon.testing.tiny_families import FAMILY_SPECS


def test_the_id_is_stable_and_names_its_parts() -> None:
    assert numerics_id("int8") == numerics_id("int8")
    parts = numerics_id("fp32").split("-")
    assert parts[0] == "cpu"
    assert "fp32" in parts
    assert f"torch{torch.__version__.split('+')[0]}" in parts
    assert parts[-1] == f"r{KERNEL_REVISION}"


def mode_in_a_process(mode: str | None) -> list[str]:
    """The variable, and the ids of fp32 and int8, where the user has set the former to `mode`."""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    code = (
        "import os; from antiphon.engine import numerics_id;"
        "print(os.getenv('MKL_CBWR', ''), numerics_id('fp32'), numerics_id('int8'), sep='|')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
        | ({} if mode is None else {"MKL_CBWR": mode}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip().split("|")


def test_the_blas_adds_in_one_order_and_the_id_of_fp32_says_so() -> None:
    wanted = strict_mode(processor_maker(), cpu_levels()[0]) or ""
    mode, fp32, int8_id = mode_in_a_process(None)
    assert mode == wanted
    assert ("-mkl" in fp32) == bool(wanted)
    assert not wanted or f"-fp32-{mode_name(wanted)}-none-" in fp32
    assert "mkl" not in int8_id


def test_a_mode_of_the_users_stays_and_has_an_id_of_its_own() -> None:
    mode, fp32, int8_id = mode_in_a_process("COMPATIBLE")
    assert mode == "COMPATIBLE"
    assert "-fp32-mklcompatible-none-" in fp32
    assert "mkl" not in int8_id


def test_strict_modes_are_for_processors_that_have_them() -> None:
    assert strict_mode("genuineintel", CpuLevel.AVX512) == "AVX512,STRICT"
    assert strict_mode("genuineintel", CpuLevel.AVX2) == "AVX2,STRICT"
    assert strict_mode("genuineintel", CpuLevel.GENERIC) is None
    for maker in ("authenticamd", "hygongenuine", "unknown"):
        assert [strict_mode(maker, level) for level in CpuLevel] == [None] * len(CpuLevel)


def test_another_dtype_has_another_id() -> None:
    assert numerics_id("int8") != numerics_id("fp32")


def test_the_quantised_id_names_bits_and_kernels() -> None:
    assert f"-int8-w8a12.{int8.KERNEL_REVISION}-" in numerics_id("int8")


def test_longrope_turns_otherwise_where_a_model_runs_long() -> None:
    """Two workers with limits on either side of the original context have KV that differs."""
    spec = FAMILY_SPECS["phi3, LongRoPE"]
    scaling = spec.rope_scaling
    assert isinstance(scaling, LongRopeScaling)
    limits = (scaling.original_context_len, scaling.original_context_len + 1)
    assert [runs_long(spec, limit) for limit in limits] == [False, True]
    short, long = (rotation_table(spec, limit)[0] for limit in limits)
    assert not torch.equal(short, long[:-1])
    assert len({numerics_id("int8", long_rope=runs_long(spec, limit)) for limit in limits}) == 2


def test_the_dtype_of_the_kv_memory_has_another_id() -> None:
    ids = {numerics_id("int8", kv_dtype) for kv_dtype in KvDtype}
    assert len(ids) == 2
    assert "-kvbf16-" in numerics_id("int8", KvDtype.BF16)
