"""`antiphon sim` as a person meets it: tables, folders, seeds, refusals, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.report import open_run, open_search
from antiphon.runs import Measured

ROOT = Path(__file__).parents[2]
SCENARIO = """
title = "two of them"
model = "llama-3-8b"
duration = "5s"
[load]
workload = "fixed:input=100-300,output=5-20"
rate = 6
slo = ["ttft=500ms,tpot=50ms"]
[[pool]]
role = "mixed"
workers = 2
device = "h100"
[[fault]]
at = "2s"
target = "random"
action = "stop"
for = "1s"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "two.toml"
    file.write_text(SCENARIO)
    return file


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process leave no page: drawing one takes longer than they do."""
    monkeypatch.setattr(Measured, "draw", lambda _self, _folder: None)


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["sim", *map(str, arguments)], prog_name="antiphon")


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_is_told_and_kept_as_that_of_a_server(scenario: Path, tmp_path: Path) -> None:
    result = run(scenario, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "met TTFT ≤ 500 ms and TPOT ≤ 50 ms" in result.stdout
    assert "Fault 1: stop mixed-" in result.stdout
    assert "counted by the simulation" in result.stdout
    kept = open_run(tmp_path / "run")
    assert kept.whole
    assert (kept.run.devices, kept.run.started_at) == (2, "")
    assert kept.run.command == "antiphon sim two.toml --seed 0"
    assert set(files_in(tmp_path / "run")) == {
        "run.json",
        "requests.jsonl",
        "summary.json",
        "report.html",
    }
    again = run(scenario, "-o", tmp_path / "run")
    assert again.exit_code == 2
    assert "holds another run" in again.stderr
    assert run(scenario, "-o", tmp_path / "run", "--overwrite").exit_code == 0


@pytest.mark.usefixtures("undrawn")
def test_a_single_run_and_runs_of_several_are_never_mixed(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(SCENARIO)
    kinds = {
        "single": (scenario,),
        "seeds": (scenario, "--seeds", "2", "--jobs", "1"),
        "scenarios": (scenario, other, "--jobs", "1"),
    }
    for kind, words in kinds.items():
        assert run(*words, "-o", tmp_path / kind).exit_code == 0
    for kind, words in kinds.items():
        for there in kinds:
            before = tree(tmp_path / there)
            refused = run(
                *words, "-o", tmp_path / there, *(() if kind == there else ("--overwrite",))
            )
            assert refused.exit_code == 2, (kind, there)
            assert "name another folder" in refused.stderr
            assert tree(tmp_path / there) == before, "nothing is written"


def tree(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*")}


def test_json_says_what_faults_cost(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace('"stop"\nfor = "1s"', '"kill"'))
    faults = json.loads(run(scenario, "--json").stdout)["faults"]
    [fault] = faults["faults"]
    assert (fault["kind"], fault["at_s"], fault["happened"]) == ("kill", 2.0, True)
    assert fault["lost_calls"] == pytest.approx(faults["lost_calls"])
    assert {"recovery_s"} <= fault.keys()
    assert faults["failed"] == 0
    assert 0 <= faults["lost_share"] <= 1
    assert (faults["tried_again"] > 0) == (faults["wasted_tokens"] > 0)
    over = json.loads(run(scenario, "--seeds", "2", "--jobs", "1", "--json").stdout)["over_seeds"]
    assert {"lost to faults", "tokens computed again"} <= {
        one["name"] for one in over[0]["spreads"]
    }


@pytest.mark.usefixtures("undrawn")
def test_runs_can_be_compared(scenario: Path, tmp_path: Path) -> None:
    for name, rate in (("slow", "3"), ("fast", "9")):
        assert run(scenario, "--rate", rate, "-o", tmp_path / name).exit_code == 0
    arguments = ["bench", "compare", str(tmp_path / "slow"), str(tmp_path / "fast")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "TTFT" in result.stdout
    report = CliRunner().invoke(app, ["bench", "report", str(tmp_path / "slow")])
    assert report.exit_code == 0, report.output


def test_the_same_seed_gives_the_same_bytes_in_any_process(scenario: Path, tmp_path: Path) -> None:
    """However the scenario was named, and wherever from."""
    for number, typed in ((1, str(scenario)), (2, f"./{scenario.name}")):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "antiphon",
                "sim",
                typed,
                "-o",
                str(tmp_path / f"{number}"),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert files_in(tmp_path / "1") == files_in(tmp_path / "2")


def test_several_seeds_in_processes_are_those_alone(scenario: Path, tmp_path: Path) -> None:
    result = run(scenario, "--seeds", "2", "--seed", "4", "-o", tmp_path / "all", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(one["scenario"], one["seed"]) for one in told["runs"]] == [("two", 4), ("two", 5)]
    (over,) = told["over_seeds"]
    assert over["seeds"] == [4, 5]
    assert {"within targets", "TTFT p50"} <= {one["name"] for one in over["spreads"]}
    assert run(scenario, "--seed", "5", "-o", tmp_path / "alone").exit_code == 0
    assert files_in(tmp_path / "all/seed-5") == files_in(tmp_path / "alone")


@pytest.mark.usefixtures("undrawn")
def test_several_scenarios_stand_side_by_side(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(SCENARIO.replace("two of them", "others"))
    result = run(scenario, other, "--jobs", "1", "-o", tmp_path / "both")
    assert result.exit_code == 0, result.output
    assert "two, 1 seed" in result.stdout
    assert "others (other)" in result.stdout
    assert open_run(tmp_path / "both/two").records == open_run(tmp_path / "both/other").records


def test_json_of_one_run_is_that_of_bench(scenario: Path, tmp_path: Path) -> None:
    result = run(scenario, "--json", "-o", tmp_path / "run")
    assert json.loads(result.stdout) == json.loads((tmp_path / "run/summary.json").read_text())


@pytest.mark.usefixtures("undrawn")
def test_goodput_is_searched_for(scenario: Path, tmp_path: Path) -> None:
    result = run(
        *(scenario, "--find-goodput", "--max-rate", "8", "--tolerance", "1"),
        *("-o", tmp_path / "search"),
    )
    assert result.exit_code == 0, result.output
    assert "Goodput is at least 4.00 requests/s per device (8.00 on 2)" in result.stdout
    kept = open_search(tmp_path / "search")
    assert kept.run.command.endswith("--max-rate 8 --tolerance 1 --find-goodput")
    assert (tmp_path / "search" / kept.probes[0] / "run.json").exists()


def test_a_dry_run_says_what_it_would_be(scenario: Path) -> None:
    result = run(scenario, "--dry-run")
    assert result.exit_code == 0, result.output
    for part in (
        "mixed: 2 mixed workers of 1 device, KV",
        "KV of",
        "6 calls/s for 5 s",
        "2.00 s  stop for 1 s",
    ):
        assert part in result.stdout

    assert "store" not in result.stdout
    scenario.write_text(SCENARIO + "[store]\ngigabytes = 64\nworkers-per-host = 2\n")
    result = run(scenario, "--dry-run")
    assert "store     KV in 64 GB of one host, one pool" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no.toml",), "no.toml: can't be read"),
        (("{}", "{}"), 'two scenarios are called "two"'),
        (("{}", "--rate", "0"), "--rate 0: must be above 0"),
        (("{}", "--rate", "nan"), "--rate nan"),
        (("{}", "--duration", "5"), '--duration "5": must be a time'),
        (("{}", "--overwrite"), "--overwrite: has no effect without -o"),
        (("{}", "--max-rate", "5"), "--max-rate: has no effect without --find-goodput"),
        (("{}", "--find-goodput", "--max-rate", "1"), "must lie between"),
        (("{}", "--dry-run", "--json"), "--dry-run: runs nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(
    scenario: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(*(one.format(scenario) for one in arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_where_all_calls_fail_the_exit_code_says_so(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("rate = 6", 'rate = 6\npatience = "1ms"'))
    result = run(scenario)
    assert result.exit_code == 1
    assert "calls failed" in result.stderr


def test_help_teaches() -> None:
    result = CliRunner().invoke(app, ["sim", "--help"], prog_name="antiphon")
    assert result.output.startswith("Usage: antiphon sim [OPTIONS] {SCENARIO}")
    for part in ("virtual time", "--find-goodput", "bench compare", "Exit code 0"):
        assert part in result.output
    assert "Usage: antiphon sim" in run().output


@pytest.mark.parametrize(
    ("seeds", "sent", "code"), [("1", signal.SIGINT, 130), ("3", signal.SIGTERM, 143)]
)
def test_who_is_stopped_tells_what_had_come(
    scenario: Path, tmp_path: Path, seeds: str, sent: signal.Signals, code: int
) -> None:
    """Terminals, `timeout` and batch systems signal all processes of a command."""
    scenario.write_text(SCENARIO.replace('"5s"', '"24h"'))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "antiphon", "sim", str(scenario), "--seeds", seeds),
            *("-o", str(tmp_path / "run")),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "sent" in line or "to come" in line
    os.killpg(process.pid, sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Stopping" in err
    assert "Traceback" not in err
    found = list((tmp_path / "run").rglob("run.json"))
    assert found
    assert not open_run(found[0].parent).whole
    assert ("Interrupted. No run came to its end: two: 0 of 3 seeds." in out) == (seeds == "3")
