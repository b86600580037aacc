"""A GGUF header, however damaged, gives a checked result or one `ModelFileError`."""

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkpoint.gguf_file import GgufFile, read_gguf
from antiphon.checkpoint.tensor_entry import stored_bytes
from antiphon.errors import ModelFileError

U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack


def text(value: str) -> bytes:
    return U64(len(value.encode())) + value.encode()


def header(*, tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + U32(version) + U64(tensors) + U64(pairs)


def tensor(name: str, offset: int, *, shape: tuple[int, ...] = (8,), kind: int = 0) -> bytes:
    dimensions = b"".join(map(U64, reversed(shape)))
    return text(name) + U32(len(shape)) + dimensions + U32(kind) + U64(offset)


def padded(head: bytes, data: bytes) -> bytes:
    return head + b"\0" * (-len(head) % 32) + data


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], GgufFile]:
    def write_and_read(content: bytes) -> GgufFile:
        path = tmp_path / "a.gguf"
        path.write_bytes(content)
        return read_gguf(path)

    return write_and_read


def test_agrees_with_the_library(tiny_gguf: Path) -> None:
    ours, theirs = read_gguf(tiny_gguf), gguf.GGUFReader(tiny_gguf)
    fields = {key: f.contents() for key, f in theirs.fields.items() if not key.startswith("GGUF.")}
    assert {k: list(v) if np.ndim(v) else v for k, v in ours.metadata.items()} == fields
    assert len(ours.tensors) == len(theirs.tensors) > 0
    for expected in theirs.tensors:
        found = ours.tensors[expected.name]
        assert found.shape == tuple(reversed(expected.shape.tolist()))
        assert found.storage == expected.tensor_type.name
        assert found.raw.tobytes() == expected.data.tobytes()


def test_every_scalar_and_array_type_is_read(tmp_path: Path) -> None:
    path, writer = tmp_path / "types.gguf", gguf.GGUFWriter(tmp_path / "types.gguf", "llama")
    values = {"u8": 200, "i8": -3, "u16": 65000, "i16": -9, "u32": 2**32 - 1, "i32": -(2**31)}
    values |= {"u64": 2**64 - 1, "i64": -(2**63), "f64": 0.1, "t": True, "f": False}
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 65000)
    writer.add_int16("i16", -9)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float64("f64", 0.1)
    writer.add_bool("t", True)
    writer.add_bool("f", False)
    writer.add_array("strings", ["", "é", "🙂"])
    writer.add_array("floats", [0.5, -1.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(path).metadata
    assert {key: found[key] for key in values} == values
    assert {type(found[key]) for key in values} == {int, float, bool}
    assert found["strings"] == ("", "é", "🙂")
    assert found["floats"].tolist() == [0.5, -1.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"GG", "ends inside its header"),
        (b"PK\x03\x04" + b"\0" * 40, "not a GGUF file"),
        (header(version=1), "version 1 is not supported"),
        (header(version=0x03000000), "big-endian"),
        (header(tensors=2**63), "ends inside its header"),
        (header(pairs=2**63), "ends inside its header"),
        (header(pairs=1) + U64(2**64 - 1), "ends inside its header"),
        (header(pairs=1) + text("k") + U32(8) + U64(2**40) + b"x", "ends inside its header"),
        (header(pairs=1) + text("k") + U32(9) + U32(8) + U64(2**61), "ends inside its header"),
        (header(pairs=1) + text("k") + U32(9) + U32(0) + U64(2**64 - 1), "ends inside its header"),
        (header(pairs=1) + text("k") + U32(9) + U32(9) + U64(1) * 3, "unsupported type 9"),
        (header(pairs=1) + text("k") + U32(77), "unsupported type 77"),
        (header(pairs=1) + text("k") + U32(8) + U64(1) + b"\xff", "is not UTF-8"),
        (header(pairs=2) + (text("k") + U32(4) + U32(1)) * 2, "'k' appears twice"),
        (header(pairs=1) + text("general.alignment") + U32(4) + U32(12), "not a power of two"),
        (header(pairs=1) + text("general.alignment") + U32(4) + U32(0), "not a power of two"),
        (header(pairs=1) + text("general.alignment") + U32(6) + U32(0), "not a power of two"),
    ],
)
def test_damaged_header(read: Callable[[bytes], GgufFile], content: bytes, problem: str) -> None:
    with pytest.raises(ModelFileError, match=problem):
        read(content)


@pytest.mark.parametrize(
    ("infos", "problem"),
    [
        ([tensor("t", 0, shape=(2**40, 2**40))], "truncated"),
        ([tensor("t", 64)], "truncated"),
        ([tensor("t", 2**64 - 32)], "truncated"),
        ([tensor("t", 4)], "not aligned to 32"),
        ([tensor("t", 0), tensor("u", 0)], "'u': its bytes overlap"),
        ([tensor("t", 0), tensor("t", 32)], "'t': appears twice"),
        ([tensor("t", 0, shape=(8, 0))], "is empty"),
        ([tensor("t", 0, shape=())], "0 dimensions"),
        ([tensor("t", 0, shape=(1, 1, 1, 1, 8))], "5 dimensions"),
        ([tensor("t", 0, shape=(31,), kind=2)], "no multiple of 32, the block of Q4_0"),
        ([tensor("t", 0, kind=16)], "'t': storage type IQ2_XXS is not supported"),
        ([tensor("t", 0, kind=999)], "'t': storage type number 999 is not supported"),
    ],
)
def test_damaged_tensors(
    read: Callable[[bytes], GgufFile], infos: list[bytes], problem: str
) -> None:
    content = padded(header(tensors=len(infos)) + b"".join(infos), bytes(64))
    with pytest.raises(ModelFileError, match=problem):
        read(content)


def test_two_tensors_in_any_order(read: Callable[[bytes], GgufFile]) -> None:
    infos = tensor("t", 32) + tensor("u", 0)
    found = read(padded(header(tensors=2) + infos, b"\1" * 32 + b"\2" * 32)).tensors
    assert {name: set(t.raw.tolist()) for name, t in found.items()} == {"t": {2}, "u": {1}}


@pytest.mark.parametrize("kind", [0, 8, 12])
def test_a_lying_count_costs_no_memory(read: Callable[[bytes], GgufFile], kind: int) -> None:
    lie = header(pairs=1) + text("k") + U32(9) + U32(kind) + U64(2**34)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            read(lie)
        assert tracemalloc.get_traced_memory()[1] < 1024**2
    finally:
        tracemalloc.stop()


NASTY = st.one_of(
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]).map(U64),
    st.integers(0, 64).map(U32),
    st.binary(min_size=1, max_size=8),
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "damaged.gguf"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_mutations(tiny_gguf: Path, scratch: Path, data: st.DataObject) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    end_of_header = content.index(b"output.weight") + 64
    tables = content.index(b"token_embd.weight")
    where = st.integers(0, end_of_header) | st.integers(tables, end_of_header) | st.integers(0, 999)
    for _ in range(data.draw(st.integers(1, 3))):
        place, change = data.draw(where), data.draw(NASTY)
        content[place : place + len(change)] = change
    check_result(scratch, bytes(content))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_truncations(tiny_gguf: Path, scratch: Path, data: st.DataObject) -> None:
    content = tiny_gguf.read_bytes()
    scratch.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ModelFileError):
        read_gguf(scratch)


def check_result(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        found = read_gguf(path)
    except ModelFileError as error:
        assert str(path) in str(error)
        return
    for entry in found.tensors.values():
        assert entry.raw.nbytes == stored_bytes(entry.storage, entry.shape)
