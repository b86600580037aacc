"""Opening a model: who it is, and that none of it needs torch."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import CheckpointFormat, open_checkpoint, resolve
from antiphon.checkpoint import identity as identity_module
from antiphon.checkpoint.identity import digest_files

Refusal = Callable[[Path], str]


def test_smollm2() -> None:
    found = open_checkpoint(resolve("smollm2-135m"))
    spec = found.spec
    assert found.format is CheckpointFormat.GGUF
    assert found.name == "SmolLM2-135M-Instruct.Q4_1"
    assert (spec.layers, spec.hidden, spec.heads, spec.kv_heads) == (30, 576, 9, 3)
    assert (spec.head_dim, spec.intermediate, spec.vocab_size) == (64, 1536, 49152)
    assert (spec.context_len, spec.rope_theta, spec.tied_embeddings) == (8192, 100000.0, True)
    assert (spec.eos_token_ids, spec.bos_token_id) == ((2,), 1)
    assert len(found.tensors) == 272


def test_opening_loads_no_torch() -> None:
    code = (
        "import sys; from antiphon.checkpoint import open_checkpoint, resolve;"
        "open_checkpoint(resolve('smollm2-135m'));"
        "sys.exit(' '.join({'torch', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_identity_is_the_content(tiny_gguf: Path, tmp_path: Path) -> None:
    content = tiny_gguf.read_bytes()
    moved, changed = tmp_path / "moved.gguf", tmp_path / "changed.gguf"
    moved.write_bytes(content)
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    original = open_checkpoint(tiny_gguf).identity
    assert len(original) == 32
    assert open_checkpoint(moved).identity == original
    assert open_checkpoint(changed).identity != original


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_identity_covers_every_part(tiny_folder: Path, name: str) -> None:
    before = open_checkpoint(tiny_folder).identity
    path = tiny_folder / name
    content = path.read_bytes()
    if name == "model.safetensors":
        path.unlink()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        path.write_bytes(content + b"\n")
    assert open_checkpoint(tiny_folder).identity != before
    path.unlink()
    path.write_bytes(content)
    assert open_checkpoint(tiny_folder.rename(tiny_folder.parent / "moved")).identity == before


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=9)), max_size=3), data=...)
def test_digests_tell_files_and_borders_apart(
    tmp_path: Path, parts: list[tuple[str, bytes]], data: bool
) -> None:
    def digest(pairs: list[tuple[str, bytes]]) -> bytes:
        files = []
        for number, (label, content) in enumerate(pairs):
            path = tmp_path / str(number)
            path.write_bytes(content)
            files.append((label, path))
        return digest_files(files)

    assert digest(parts) == digest(list(parts))
    assert digest(parts) != digest([*parts, ("", b"")])
    if len(parts) > 1 and data:
        (a, x), (b, y), *rest = parts
        if y:
            assert digest(parts) != digest([(a, x + y), (b, b""), *rest])


def test_segments_cover_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "_SEGMENT_BYTES", 10)
    monkeypatch.setattr(identity_module, "_READ_BYTES", 3)
    path, digests = tmp_path / "a", set()
    for position in range(25):
        path.write_bytes(bytes(position) + b"\1" + bytes(24 - position))
        digests.add(digest_files([("a", path)]))
    for size in range(25):
        path.write_bytes(bytes(size))
        digests.add(digest_files([("a", path)]))
    assert len(digests) == 50


def test_not_a_model(tmp_path: Path, refusal: Refusal) -> None:
    assert "No such file" in refusal(tmp_path / "absent")
    assert "config.json" in refusal(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"x")
    assert "give the folder" in refusal(weights)
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "neither a file nor a folder" in refusal(tmp_path / "pipe.gguf")
