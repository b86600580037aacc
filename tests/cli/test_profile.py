"""`antiphon profile` on a tiny model: what it prints and writes, and what it refuses."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.cli.profile import budget_seconds, default_name
from antiphon.cli.profile_report import report
from antiphon.engine import TorchEngine
from antiphon.errors import UsageError
from antiphon.perf import StepKind, read_profile
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.types import StepPlan, StepResult


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return write_hf_folder(folder, TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """The command takes all cores; other tests shall run as before."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/antiphon"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["profile", *map(str, arguments)], prog_name="antiphon")


# Ends earlier on a quiet machine, since repeats are bounded.
SMALL = ("--kv-memory", "16MiB", "--budget", "4s")


@pytest.fixture(scope="module")
def measured(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """One run with --json: what it printed, and its file."""
    folder = tmp_path_factory.mktemp("measured")
    path = folder / "here/tiny.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        options = ("--page-tokens", 4, "--max-model-len", 200, "--json", "-o", path)
        return run(tiny, *SMALL, *options), path


def test_json_and_the_file_say_the_same(measured: tuple[Any, Path]) -> None:
    result, path = measured
    assert result.exit_code == 0, result.output
    assert result.stdout == path.read_text()
    assert json.loads(result.stdout)["version"] == 1
    assert f"Profile: {path}" in result.stderr


def test_the_profile_says_what_was_measured(measured: tuple[Any, Path]) -> None:
    profile = read_profile(measured[1])
    engine = profile.engine
    assert (engine.model, engine.dtype, engine.page_tokens) == ("tiny", "int8", 4)
    assert engine.max_model_len == 200
    assert len(engine.identity) == 64
    assert "int8" in engine.numerics
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", profile.measured_at)
    assert {point.shape.kind for point in profile.points if not point.held_out} == set(StepKind)
    assert all(point.repeats >= 3 for point in profile.points)
    assert all(point.seconds > 0 for point in profile.points)
    assert profile.held_out.points == sum(point.held_out for point in profile.points)
    for point in profile.points:
        assert point.predicted_s == profile.step_time.seconds_of(point.shape.work)


def test_the_report_and_the_default_file(tiny: Path, cache: Path) -> None:
    result = run(tiny, *SMALL)
    assert result.exit_code == 0, result.output
    (path,) = (cache / "profiles").iterdir()
    assert re.fullmatch(r"tiny-int8-\d+cores\.json", path.name)
    assert f"Profile: {path}\n" in result.stdout
    assert result.stdout.startswith(report(read_profile(path)))
    for shown in ("held out", "A step takes the sum of", "Error on", "Spread", "goal: median 5%"):
        assert shown in result.stdout
    assert "Measuring" in result.stderr


def test_a_profile_of_a_device_has_its_name(measured: tuple[Any, Path]) -> None:
    profile = read_profile(measured[1])
    assert default_name(profile, "cuda:1") == "tiny-int8-cuda_1.json"
    assert default_name(profile, "cpu") == f"tiny-int8-{profile.engine.cores}cores.json"


def test_a_busy_machine_is_told(measured: tuple[Any, Path]) -> None:
    read = read_profile(measured[1])
    quiet = tuple(replace(point, spread=0.01) for point in read.points)
    noisy = tuple(replace(point, spread=0.3) for point in quiet)
    profile = replace(read, load=0.2, points=quiet)
    assert "Warning" not in report(profile)
    assert "took too long" not in report(replace(profile, left_out=0))
    assert "5 other steps took too long for the budget" in report(replace(profile, left_out=5))
    assert "Warning: the machine was busy" in report(replace(profile, points=noisy))
    assert "Warning: the machine was busy" in report(replace(profile, load=3.0))
    once = tuple(replace(point, spread=0.0, repeats=1) for point in quiet)
    assert "median unknown" in report(replace(profile, points=once))
    assert "Warning: the machine was busy" in report(replace(profile, points=once))


def test_an_interrupt_leaves_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[StepPlan] = []
    forward = TorchEngine.forward

    def interrupted(self: TorchEngine, plan: StepPlan) -> StepResult:
        passes.append(plan)
        if len(passes) == 40:
            raise KeyboardInterrupt
        return forward(self, plan)

    monkeypatch.setattr(TorchEngine, "forward", interrupted)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "tiny.json").write_text("an earlier one")
    # A budget that no machine can use up in 40 passes.
    options = ("--kv-memory", "16MiB", "--budget", "120s")
    result = run(tiny, *options, "-o", folder / "tiny.json")
    assert len(passes) == 40
    assert result.exit_code == 130
    assert result.stdout == ""
    assert [file.read_text() for file in folder.iterdir()] == ["an earlier one"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "soon"), '--budget "soon": must be a time from 1s'),
        (("--cores", "x"), '--cores "x"'),
        (("--quantize", "int3"), "model.quantize"),
        (("--max-model-len", "100000"), "model.max_model_len = 100000"),
        (("--kv-memory", "1MiB", "--max-model-len", "2"), "raise --budget or --kv-memory"),
    ],
)
def test_what_is_wrong_is_one_line(tiny: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(tiny, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr.splitlines()[-1]


def test_a_file_that_can_t_be_written_is_known_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file/deeper/profile.json", tmp_path):
        result = run("no such model", "-o", path)
        assert result.exit_code == 2
        assert (
            result.stderr == f"antiphon: {path}: can't be written: give another file (--output)\n"
        )


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("60", 60), ("1.5min", 90), ("2 min", 120), ("1s", 1)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "0s", "0.5", "25h", "nan", "inf", "1e3", "99999min"]
)
def test_bad_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="--budget"):
        budget_seconds(text)
