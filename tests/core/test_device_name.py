"""Names of devices, and what is wrong with them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.config import build
from antiphon.core.device_name import (
    CudaFound,
    DeviceName,
    device_of_worker,
    device_problem,
    parse_device,
    room_problem,
)
from antiphon.errors import ConfigError

GIB = 2**30
TWO = CudaFound(program="torch 2", build="13.0", devices=("H200", "H100"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu", DeviceName("cpu")),
        ("cuda", DeviceName("cuda")),
        ("cuda:0", DeviceName("cuda", 0)),
        ("cuda:17", DeviceName("cuda", 17)),
        *(
            (bad, None)
            for bad in ("", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:1000", "CUDA", "cuda:٣")
        ),
    ],
)
def test_names(text: str, expected: DeviceName | None) -> None:
    assert parse_device(text) == expected
    if expected is not None:
        assert expected.text == text


@given(st.text())
def test_any_other_text_is_refused_by_one_line_that_says_the_forms(text: str) -> None:
    if parse_device(text) is None:
        with pytest.raises(ConfigError, match=r"^engine\.device") as refused:
            build({"engine": {"device": text}})
        assert len(str(refused.value).splitlines()) == 1


@given(st.integers(0, 300), st.integers(1, 16))
def test_workers_take_devices_in_turn(number: int, devices: int) -> None:
    mine = device_of_worker(DeviceName("cuda"), number, devices)
    assert mine == DeviceName("cuda", number % devices)
    for fixed in (DeviceName("cpu"), DeviceName("cuda", 3)):
        assert device_of_worker(fixed, number, devices) == fixed


@pytest.mark.parametrize(
    ("name", "found", "words"),
    [
        (
            DeviceName("cuda"),
            CudaFound(program="torch 2", build=None),
            "built without CUDA: install",
        ),
        (
            DeviceName("cuda", 1),
            CudaFound(program="torch 2", build="13.0", why_none="no driver"),
            r"cuda:1 \(--device\).* finds no device here \(no driver\): see whether `nvidia-smi`",
        ),
        (DeviceName("cuda", 2), TWO, r"there are cuda:0 \(H200\), cuda:1 \(H100\)"),
    ],
)
def test_what_is_wrong_and_what_to_do(name: DeviceName, found: CudaFound, words: str) -> None:
    problem = device_problem(name, found)
    assert problem is not None
    assert re.search(words, problem)


def test_what_is_there_is_no_problem() -> None:
    nothing = CudaFound(program="torch 2", build=None)
    assert device_problem(DeviceName("cpu"), nothing) is None
    assert device_problem(DeviceName("cuda"), TWO) is None
    assert device_problem(DeviceName("cuda", 1), TWO) is None


def test_room() -> None:
    name = DeviceName("cuda", 0)
    assert room_problem(name, weights=3 * GIB, kv=4 * GIB, free=7 * GIB) is None
    lower = room_problem(name, weights=3 * GIB, kv=5 * GIB, free=7 * GIB)
    assert lower is not None
    assert "7 GiB are free there, but the weights need 3 GiB and the KV memory 5 GiB" in lower
    assert "lower kv.memory_bytes" in lower
    other = room_problem(name, weights=9 * GIB, kv=GIB, free=7 * GIB)
    assert other is not None and "smaller model or dtype" in other
