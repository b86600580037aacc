"""A measured profile reaches the router, or is refused by its name."""

from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.router_times import router_times
from antiphon.perf import (
    DEFAULT_LINK_TIME,
    DEFAULT_STEP_TIME,
    Accuracy,
    Profile,
    ProfiledEngine,
    write_profile,
    write_times,
)
from antiphon.types import Config

IDENTITY = b"\x07" * 32
MEASURED = replace(DEFAULT_STEP_TIME, fixed_s=0.125)
EXACT = Accuracy(points=0, median=0.0, p95=0.0, worst=0.0)


def measured(**engine: object) -> Profile:
    known = ProfiledEngine(
        model="tiny",
        identity=IDENTITY.hex(),
        numerics="n",
        dtype="int8",
        cores=1,
        page_tokens=16,
        max_model_len=256,
        machine="here",
    )
    return Profile(
        engine=replace(known, **engine),
        measured_at="then",
        load=0.0,
        left_out=0,
        step_time=MEASURED,
        fitted=EXACT,
        held_out=EXACT,
        points=(),
    )


def config(file: Path) -> Config:
    return build({"router": {"profile": str(file)}})


def test_without_a_profile_the_shipped_times_hold() -> None:
    assert router_times(build({}), IDENTITY) == ""


def test_what_was_measured_is_what_the_router_gets(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    write_profile(measured(cores=4), file)
    assert router_times(config(file), IDENTITY) == write_times(MEASURED, DEFAULT_LINK_TIME)


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ({"identity": "00" * 32}, "another model"),
        ({"dtype": "fp32"}, "fp32 arithmetic"),
    ],
)
def test_a_profile_of_something_else_is_refused(tmp_path: Path, engine, problem: str) -> None:
    file = tmp_path / "p.json"
    write_profile(measured(**engine), file)
    with pytest.raises(UsageError, match=rf"router\.profile .*p\.json: .*{problem}"):
        router_times(config(file), IDENTITY)


def test_how_to_measure_what_is_computed_is_said(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    write_profile(measured(dtype="fp32"), file)
    values = {"router": {"profile": str(file)}}
    with pytest.raises(UsageError, match=r"\(antiphon profile --quantize int8\)"):
        router_times(build(values), IDENTITY)
    with pytest.raises(UsageError, match=r"\(antiphon profile --dtype bf16\)"):
        router_times(build({**values, "model": {"dtype": "bf16"}}), IDENTITY)
    router_times(build({**values, "model": {"quantize": "none"}}), IDENTITY)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json"):
        router_times(config(tmp_path / "none.json"), IDENTITY)
