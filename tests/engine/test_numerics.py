"""The numerics id names what bits depend on."""

import torch

from antiphon.engine import int8
from antiphon.engine.kv_memory import KvDtype
from antiphon.engine.numerics import KERNEL_REVISION, numerics_id


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


def test_the_dtype_of_the_kv_memory_has_another_id() -> None:
    ids = {numerics_id("int8", kv_dtype) for kv_dtype in KvDtype}
    assert len(ids) == 2
    assert "-kvbf16-" in numerics_id("int8", KvDtype.BF16)
