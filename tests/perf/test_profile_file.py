"""The file: what is written is read again; anything odd is refused by file and key."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import UsageError
from antiphon.perf import (
    Accuracy,
    FittedStepTime,
    Limits,
    Point,
    Profile,
    ProfiledEngine,
    Ramp,
    encode_profile,
    grid,
    read_profile,
    write_profile,
)

MODEL = FittedStepTime(
    fixed_s=0.1 + 0.2,
    token=Ramp(starts=(0, 8), slopes_s=(1e-3, 1e-300)),
    sampled=Ramp(starts=(0,), slopes_s=(0.0,)),
    chunk_s=1e-5,
    context_s=1 / 3,
    attention_s=1e-9,
)
ERRORS = Accuracy(points=3, median=0.01, p95=0.1, worst=0.2)
PROFILE = Profile(
    engine=ProfiledEngine(
        model="tiny ✓",
        identity="00ff",
        numerics="cpu-x",
        dtype="fp32",
        cores=2,
        page_tokens=16,
        max_model_len=256,
        machine="A processor",
    ),
    measured_at="2001-02-03T04:05:06+00:00",
    load=0.5,
    left_out=7,
    step_time=MODEL,
    fitted=ERRORS,
    held_out=ERRORS,
    points=tuple(
        Point(shape=shape, held_out=False, seconds=1.0, predicted_s=1.1, spread=0.0, repeats=3)
        for shape in grid(Limits(max_model_len=64, pages=100, page_tokens=16))[:4]
    ),
)


def test_what_is_written_is_read_again_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/profile.json"
    write_profile(PROFILE, path)
    assert read_profile(path) == PROFILE
    write_profile(replace(PROFILE, load=0.75), path)
    assert read_profile(path).load == 0.75
    assert [file.name for file in path.parent.iterdir()] == ["profile.json"]


def edited(path: Path, *keys: str | int, value: Any) -> Path:
    """The profile's file with one value changed; `...` removes it."""
    tree: Any = json.loads(encode_profile(PROFILE))
    inner = tree
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("version",), 2, "version: is 2, but this program reads 1"),
        (("version",), True, "version: is True"),
        (("version",), ..., "version: is None"),
        (("profile",), "other", "is not a profile"),
        (("colour",), 1, "unknown key 'colour' - at `$`"),
        (("engine", "gpu"), 1, "unknown key 'gpu' - at `$.engine`"),
        (("step_time", "token", "x"), 1, "unknown key 'x' - at `$.step_time.token`"),
        (("points", 1, "x"), 1, "unknown key 'x' - at `$.points[1]`"),
        (("points", 1, "shape", "x"), 1, "unknown key 'x' - at `$.points[1].shape`"),
        (("step_time", "fixed_s"), ..., "missing required field `fixed_s` - at `$.step_time`"),
        (("step_time", "fixed_s"), "1", "Expected `float`, got `str` - at `$.step_time.fixed_s`"),
        (("step_time", "context_s"), -1e-9, "context_s must be finite and at least 0"),
        (("step_time", "token", "slopes_s"), [1, -1], "slopes_s must be finite"),
        (("step_time", "token", "starts"), [0, 0], "starts must grow from 0"),
        (("step_time", "attention_s"), math.nan, "JSON is malformed"),
        (("step_time", "attention_s"), math.inf, "JSON is malformed"),
        (("held_out", "p95"), -0.1, "p95 must be finite and at least 0"),
        (("points", 0, "seconds"), -1, "seconds must be finite and at least 0"),
        (("left_out",), -1, "left_out must be finite and at least 0"),
        (("load",), -1, "load must be finite and at least 0"),
        (("points", 0, "shape", "kind"), "guess", "Invalid enum value 'guess'"),
        (("engine",), 3, "Expected `object`, got `int` - at `$.engine`"),
    ],
)
def test_anything_odd_is_refused_by_file_and_key(
    tmp_path: Path, keys: tuple[str | int, ...], value: Any, message: str
) -> None:
    path = edited(tmp_path / "bad.json", *keys, value=value)
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff", b"null", b"[" * 100_000, b'{"a": 1e999}']
)
def test_a_file_that_is_no_profile(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.json"):
        read_profile(path)


def test_files_that_can_t_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_profile(tmp_path / "none.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        write_profile(PROFILE, tmp_path / "file/profile.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="can't be written"):
        write_profile(PROFILE, tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
