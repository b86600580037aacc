"""Blobs and a profile that the first version wrote are read as ever: entropy-coded levels."""

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from antiphon.store.codec import (
    Blob,
    KvProfile,
    decode,
    encode,
    entropy,
    peek_kv_profile,
    read_blob,
    read_kv_profile,
)
from codec_kit import floats

VECTORS = json.loads((Path(__file__).parent / "entropy_vectors.json").read_text())
NAMES = [name for name in VECTORS if name != "profile"]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> KvProfile:
    path = tmp_path_factory.mktemp("frozen") / "of.kvprofile"
    path.write_bytes(zlib.decompress(base64.b64decode(VECTORS["profile"])))
    profile = read_kv_profile(path)
    name = peek_kv_profile(path)
    assert (name.id, name.identity, name.model) == (profile.id, profile.identity, profile.model)
    return profile


@pytest.mark.parametrize("name", NAMES)
def test_frozen_bytes_are_read_as_ever(name: str, frozen: KvProfile) -> None:
    """Matrix products differ in their last bits from machine to machine: symbols may not."""
    data, block = (bytes.fromhex(VECTORS[name][part]) for part in ("data", "block"))
    found, wanted = np.zeros((1, 1, 2, 1, 16, 16), np.uint16), np.frombuffer(block, np.uint16)
    assert decode(data, found, profile=frozen) is None
    np.testing.assert_allclose(floats(found.reshape(-1)), floats(wanted), rtol=0.01, atol=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_now_was_readable_then(name: str, frozen: KvProfile) -> None:
    """Its header says the same of the same block."""
    old = read_blob(bytes.fromhex(VECTORS[name]["data"]))
    assert isinstance(old, Blob)
    block = np.frombuffer(bytes.fromhex(VECTORS[name]["block"]), np.uint16)
    again = encode(
        block.reshape(1, 1, 2, 1, 16, 16).copy(),
        entropy(old.level.number),
        start=old.start,
        profile=frozen,
    )
    assert again is not None
    new = read_blob(again)
    assert isinstance(new, Blob)
    assert (new.level, new.shape, new.start, new.profile) == (
        *(old.level, old.shape, old.start, old.profile),
    )
    assert new.kept_tokens == old.kept_tokens
