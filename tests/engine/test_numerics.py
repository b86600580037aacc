"""The numerics id names what bits depend on."""

import torch

from antiphon.engine.numerics import KERNEL_REVISION, numerics_id


def test_the_id_is_stable_and_names_its_parts() -> None:
    assert numerics_id() == numerics_id()
    parts = numerics_id("fp32").split("-")
    assert parts[0] == "cpu"
    assert "fp32" in parts
    assert f"torch{torch.__version__.split('+')[0]}" in parts
    assert parts[-1] == f"r{KERNEL_REVISION}"


def test_other_formats_have_other_ids() -> None:
    ids = {numerics_id(), numerics_id("bf16"), numerics_id(quantisation="int8")}
    assert len(ids) == 3
