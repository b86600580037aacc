"""What a model computes in, of all that can be said about it."""

from itertools import product

import pytest

from antiphon.core.arithmetic import dtype_of, kernel_dtype, on_torch_device
from antiphon.core.config import as_mapping, build
from antiphon.errors import ConfigError
from antiphon.types import Config

DEVICES = ("cpu", "cuda", "cuda:1")
QUANTIZE = (None, "int8", "none")
DTYPES = (None, "fp32", "bf16", "fp16")


def said(device: str, quantize: str | None, dtype: str | None) -> Config:
    model = {"quantize": quantize, "dtype": dtype}
    given = {key: value for key, value in model.items() if value is not None}
    return build({"engine": {"device": device}, "model": given})


def computed(config: Config) -> str:
    return dtype_of(config.model.quantize, config.model.dtype)


@pytest.mark.parametrize(
    ("device", "quantize", "dtype", "arithmetic"),
    [
        ("cpu", None, None, "int8"),
        ("cpu", "none", None, "fp32"),
        ("cpu", "int8", None, "int8"),
        ("cuda", None, None, "bf16"),
        ("cuda:1", None, None, "bf16"),
        ("cuda", "none", None, "bf16"),
    ],
)
def test_what_nobody_says_follows_the_device(
    device: str, quantize: str | None, dtype: str | None, arithmetic: str
) -> None:
    assert computed(said(device, quantize, dtype)) == arithmetic


@pytest.mark.parametrize(("device", "quantize", "dtype"), [*product(DEVICES, QUANTIZE, DTYPES)])
def test_whatever_is_said_is_done_or_refused(
    device: str, quantize: str | None, dtype: str | None
) -> None:
    """And what was decided, said in full, is decided so again: processes hand it to each other."""
    if quantize == "int8" and (dtype is not None or device != "cpu"):
        with pytest.raises(ConfigError, match=r"--quantize") as refused:
            said(device, quantize, dtype)
        other = "--dtype" if dtype is not None else "--device"
        assert other in str(refused.value)
        assert '"none"' in str(refused.value)
        return
    config = said(device, quantize, dtype)
    assert quantize in {None, config.model.quantize}
    assert dtype in {None, config.model.dtype}
    assert (config.model.quantize == "int8") == (config.model.dtype is None)
    assert on_torch_device(config) == (device != "cpu" or computed(config) in {"bf16", "fp16"})
    assert build(as_mapping(config)) == config
    if on_torch_device(config):
        with pytest.raises(ConfigError, match="on the processor"):
            kernel_dtype(config)
    else:
        assert kernel_dtype(config) == computed(config)


def test_a_configuration_that_nobody_built_computes_like_an_empty_one() -> None:
    assert Config() == build({})
