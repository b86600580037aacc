"""`antiphon sim explore`: sums, cases, exit codes, what it refuses, and Ctrl-C."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.sim.explore import cluster_run, search
from antiphon.sim.explore.cluster_run import Parts
from antiphon.sim.explore.scorecard import SeedRun
from antiphon.testing.faulty_cluster import book_that_loses_resume_points

FEW = ("--seeds", "2", "--family", "honest", "--jobs", "1")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["sim", "explore", *arguments])


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cluster loses resume points."""
    parts, true_run = Parts(make_book=book_that_loses_resume_points), cluster_run.run_cluster

    def run_faulty(setup: Any, family: Any, _: Parts) -> Any:
        return true_run(setup, family, parts)

    monkeypatch.setattr(cluster_run, "run_cluster", run_faulty)
    monkeypatch.setattr(search, "run_cluster", run_faulty)


def test_sums_are_shown() -> None:
    result = run(*FEW)
    assert result.exit_code == 0
    assert "honest" in result.stdout
    assert "I35  a cancel is obeyed\n" in result.stdout
    assert "Of 2 runs 0 broke a law" in result.stdout


def test_sums_as_json_and_in_a_folder(tmp_path: Path) -> None:
    result = run(*FEW, "--family", "store", "--json", "-o", str(tmp_path / "new/found"))
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert said["runs"] == 4
    assert list(said["families"]) == ["honest", "store"]
    assert said["families"]["honest"]["outcomes"]["finished"] > 0
    assert said["broken"] == []
    assert json.loads((tmp_path / "new/found/explore.json").read_text()) == said


@pytest.mark.usefixtures("faulty")
def test_a_broken_law_is_shown_as_a_test() -> None:
    result = run(*FEW)
    assert result.exit_code == 1
    assert "I14  each token is delivered once: BROKEN by" in result.stdout
    assert "def test_i14_holds() -> None:" in result.stdout
    assert "run_cluster(setup, Family.HONEST)" in result.stdout


def test_a_case_that_was_kept_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("faulty")
    assert run(*FEW, "-o", str(tmp_path)).exit_code == 1
    (case,) = tmp_path.glob("case-I14-seed*.json")
    (test,) = tmp_path.glob("test_case_I14_seed*.py")
    compile(test.read_text(), str(test), "exec")
    again = run("--replay", str(case))
    assert again.exit_code == 1
    assert again.stdout.startswith("I14: ")
    monkeypatch.undo()
    repaired = run("--replay", str(case))
    assert repaired.exit_code == 0
    assert repaired.stdout.startswith("I14 holds now")


def test_ctrl_c_shows_the_sums_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    true_search = search.search

    def interrupted(*arguments: Any, **named: Any) -> Iterator[SeedRun]:
        yield next(true_search(*arguments, **named))
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "search", interrupted)
    result = run(*FEW)
    assert result.exit_code == 130
    assert "Of 1 run 0 broke a law" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--family", "kind"), '--family "kind": must be one of honest, impatient'),
        (("--seeds", "0"), "--seeds"),
        (("--jobs", "0"), "--jobs"),
        (("--replay", "none.json"), "--replay none.json: can't be read"),
        (("--replay", __file__), "it is no JSON"),
        (("-o", f"{__file__}/found"), "can't be made"),
    ],
)
def test_what_can_not_begin_is_refused(arguments: tuple[str, ...], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
