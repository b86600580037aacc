"""The numerics id names what bits depend on."""

import torch

from antiphon.checkpoint import LongRopeScaling
from antiphon.engine import int8
from antiphon.engine.kv_memory import KvDtype
from antiphon.engine.numerics import KERNEL_REVISION, numerics_id
from antiphon.engine.rope import rotation_table, runs_long
from antiphon.testing.tiny_families import FAMILY_SPECS


def test_the_id_is_stable_and_names_its_parts() -> None:
    assert numerics_id("int8") == numerics_id("int8")
    parts = numerics_id("fp32").split("-")
    assert parts[0] == "cpu"
    assert "fp32" in parts
    assert f"torch{torch.__version__.split('+')[0]}" in parts
    assert parts[-1] == f"r{KERNEL_REVISION}"


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
