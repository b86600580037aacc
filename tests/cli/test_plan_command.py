"""`antiphon plan`: its answers, its files, and what it says to wrong words."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from antiphon.cli.app import app
from antiphon.core.config import build
from antiphon.sim.placing import SearchRun

SMALL = (
    "--model llama-3-8b --devices cpu-socket --count 2 --workload fixed:input=200,output=4 "
    "--slo ttft=1s,tpot=500ms --trials 2 --seeds 1 --processes 1"
)

LONG = "--model opt-13b --devices a100 --count 4 --workload chat:max_context=2048 --slo-preset chat"


def plan(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("plans") / "plan"
    return plan(*SMALL.split(), "--json", "-o", str(folder)), folder


def test_json_names_the_best_and_why_the_others_are_not(planned: tuple[Result, Path]) -> None:
    result, _ = planned
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    best, ranking = found["best"], found["ranking"]
    assert found["whole"]
    assert best["devices"] <= 2
    assert best["calls_per_s"] > 0
    full = [one for one in ranking if one["look"] == "full"]
    assert ranking[0]["worth"] == max(one["worth"] for one in full)
    assert all(one["calls_per_s"] <= 1.3 * one["bound_per_s"] for one in ranking)
    assert len(ranking) + len(found["beaten"]) == 2
    for beaten in found["beaten"]:
        assert beaten["in_time"] < 0.9


def test_the_configuration_can_be_served(planned: tuple[Result, Path]) -> None:
    result, folder = planned
    best = json.loads(result.stdout)["best"]
    text = (folder / "cluster.toml").read_text()
    config = build(tomllib.loads(text))
    workers = sum(pool["workers"] for pool in best["pools"])
    cluster = config.cluster
    assert cluster.prefill + cluster.decode + (cluster.mixed or 0) == workers
    assert (config.router.ttft_s, config.router.tpot_s) == (1.0, 0.5)
    assert best["text"] in text


def test_the_folder_holds_json_and_a_plot(planned: tuple[Result, Path]) -> None:
    result, folder = planned
    assert json.loads((folder / "plan.json").read_text()) == json.loads(result.stdout)
    assert "<svg" in (folder / "plan.svg").read_text()
    again = plan(*SMALL.split(), "-o", str(folder))
    assert again.exit_code == 2
    assert "not an empty folder" in again.stderr


def test_ctrl_c_prints_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    take = SearchRun._take

    def interrupt(self: SearchRun, *told: object) -> None:
        take(self, *told)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchRun, "_take", interrupt)
    result = plan(*SMALL.split())
    assert result.exit_code == 130
    assert "Interrupted: this is what was known by then." in result.stdout
    assert "cpu-socket TP1" in result.stdout


@pytest.mark.parametrize("to_all", [False, True])
def test_sigterm_prints_what_is_known_and_leaves_nobody(to_all: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon", "plan", *LONG.split(), "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    while "glance 1 of" not in process.stderr.readline():
        assert process.poll() is None
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)  # pipes close when all of them are gone
    assert process.returncode == 143, err
    assert "Interrupted: this is what was known by then." in out
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model llama-3-8", "did you mean 'llama-3-8b'"),
        ("--devices h80", "did you mean 'h800'"),
        ("--devices ,", '--devices ",": name kinds such as h800,h20'),
        ("--devices h100,h100", "names a kind of device twice"),
        ("--count 0", "--count 0: must be from 1 to 256"),
        ("--node 0", "--node 0: must be"),
        ("--seeds 0", "--seeds 0: must be"),
        ("--trials 0", "--trials 0: must be"),
        ("--processes 0", "--processes 0: must be"),
        ("--rate 0", "--rate 0: must be above 0"),
        ("--rate nan", "--rate nan: must be above 0"),
        ("--by speed", "must be devices or money"),
        ("--price h100", "must be such as h800=2.5"),
        ("--price h100=-1", "must be such as h800=2.5"),
        ("--price h20=1", "--devices names no h20"),
        ("--weight-bits 5", "must be one of 4, 8, 16, 32"),
        ("--kv-bits 0", "must be one of 4, 8, 16, 32"),
        ("--slo ttft=1s", "give both"),
        ("--slo code:ttft=1s,tpot=50ms", "leave the class out"),
        ("--slo ttft=fast,tpot=50ms", "must be a time"),
        ("--workload chats", "workload: must be one of"),
        ("--arrivals never", "arrivals: must be one of"),
        ("--count 1 --model deepseek-v3", "does not fit into 1 of h100"),
        ("--slo ttft=1ms,tpot=50ms", "relax --slo"),
        ("--model opt-13b", "add max_context=2048"),
    ],
)
def test_wrong_words_are_one_line(words: str, said: str) -> None:
    given = {"--model": "llama-3-8b", "--devices": "h100", "--slo": "ttft=1s,tpot=50ms"}
    pieces = words.split()
    given |= dict(zip(pieces[::2], pieces[1::2], strict=True))
    result = plan(*(word for pair in given.items() for word in pair))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("antiphon: ")


def test_targets_are_asked_for() -> None:
    result = plan("--model", "llama-3-8b", "--devices", "h100")
    assert result.exit_code == 2
    assert "ttft=500ms,tpot=50ms" in result.stderr
