"""A safetensors header, however damaged, gives checked entries or one `ModelFileError`."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from antiphon.checkpoint.safetensors_file import read_safetensors
from antiphon.checkpoint.tensor_entry import stored_bytes
from antiphon.errors import ModelFileError


def packed(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"t": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"\x80\x02", "truncated or damaged"),
        (b"\x80\x02ctorch\nload" * 9, "truncated or damaged"),
        ((2**63).to_bytes(8, "little") + b"{}", "truncated or damaged"),
        (packed([]), "truncated or damaged"),
        (packed(one("F32", [4], 0, 16)), "truncated or damaged"),
        (packed(one("F32", [4], 0, 16), bytes(15)), "truncated or damaged"),
        (packed(one("F32", [4], 0, 16), bytes(17)), "truncated or damaged"),
        (packed(one("F32", [2**40, 2**40], 0, 16), bytes(16)), "truncated or damaged"),
        (packed(one("F32", [5], 0, 16), bytes(16)), "truncated or damaged"),
        (packed(one("F32", [4], 16, 0), bytes(16)), "truncated or damaged"),
        (packed(one("F32", [0], 0, 0)), "'t': shape"),
        (packed(one("F32", [], 0, 4), bytes(4)), "'t': shape"),
        (packed(one("F64", [2], 0, 16), bytes(16)), "'t': storage type F64 is not supported"),
        (packed(one("I8", [16], 0, 16), bytes(16)), "'t': storage type I8 is not supported"),
    ],
)
def test_damaged(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=problem):
        read_safetensors(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutations_and_truncations(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.safetensors"
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5).to(torch.bfloat16)}
    save_file(tensors, path, metadata={"format": "pt"})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(content)))
        change = data.draw(st.binary(max_size=4) | st.from_regex(rb"[0-9]{1,3}", fullmatch=True))
        content[place : place + data.draw(st.integers(0, 4))] = change
    path.unlink()
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = read_safetensors(path)
    except ModelFileError as error:
        assert str(path) in str(error)
        return
    for entry in found.values():
        assert entry.raw.nbytes == stored_bytes(entry.storage, entry.shape) > 0
