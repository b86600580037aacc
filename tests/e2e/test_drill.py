"""Chaos on live processes: a minute of it, with the real model, through the command."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

SHAPE = ("--prefill", "2", "--decode", "2", "--kv-memory", "192MiB")
LOAD = ("--rate", "3", "--asks", "8", "--prompt-words", "10-200", "--max-tokens", "80-160")
TIMES = ("--duration", "12", "--every", "4")
KILL_SEED, STOP_SEED = 4, 1
"""By the seed the first victim is a decode worker, with a dozen long answers under way: streams
are interrupted on slow machines and on quick ones."""


def drill(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "drill", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.parametrize(
    ("kind", "seed", "lost_after_s"), [("kill", KILL_SEED, 60), ("stop", STOP_SEED, 1)]
)
def test_workers_die_under_load_and_nothing_is_lost(
    kind: str, seed: int, lost_after_s: int, tmp_path: Path
) -> None:
    """A closed stream tells of a dead worker within a second; silence would take a minute here.

    Of a stopped one only its silence tells.
    """
    config = tmp_path / "cluster.toml"
    config.write_text(f"[cluster]\nlost_after_s = {lost_after_s}\n")
    code, report, said = drill(
        *("--kind", kind, "--seed", str(seed), "--stop-for", "4", "--config", str(config)),
        *TIMES,
        *SHAPE,
        *LOAD,
    )
    assert code == 0, (report, said)
    assert report["passed"] is True
    assert report["findings"] == report["leftovers"] == report["growth"] == []
    faults = report["faults"]
    assert len(faults) >= 2
    assert all(fault["detected_s"] and fault["back_s"] for fault in faults)
    assert report["asks"] > 20
    recoveries = report["recoveries"]
    assert recoveries, "no request was interrupted: nothing was put to the test"
    assert {one["worker"] for one in recoveries} <= {fault["target"] for fault in faults}
    detection_s = median(one["detection_s"] for one in recoveries)
    if kind == "kill":
        assert detection_s <= 1.0
    else:
        assert detection_s < 4, "it was given up while it stood still"


def test_who_stands_still_for_a_moment_is_kept_and_so_are_its_streams(tmp_path: Path) -> None:
    config = tmp_path / "cluster.toml"
    config.write_text("[cluster]\nlost_after_s = 60\n")
    code, report, said = drill(
        *("--kind", "stop", "--stop-for", "0.5", "--config", str(config)),
        *("--duration", "5", "--every", "1", "--prefill", "1", "--decode", "2"),
        *("--kv-memory", "192MiB", "--asks", "4", "--max-tokens", "40-80"),
    )
    assert code == 0, (report, said)
    assert report["faults"]
    assert all(fault["detected_s"] is None for fault in report["faults"])
    assert report["recoveries"] == []


def test_a_cluster_of_one_has_nobody_who_could_be_spared() -> None:
    """Then no fault happens, and a drill that tested nothing has not passed."""
    code, report, _ = drill(
        *("--prefill", "0", "--decode", "0", "--mixed", "1", "--kv-memory", "64MiB"),
        *("--duration", "2", "--every", "0.5", "--asks", "2", "--max-tokens", "4-8"),
    )
    assert code == 1
    assert report["faults"] == []
    assert report["findings"] == []


def test_nobody_serves_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "drill", "--url", "http://127.0.0.1:9"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "no server of yours" in done.stderr


def test_a_cluster_that_does_not_start_says_why() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "drill", "./no-such-model.gguf"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "no such file or folder" in done.stderr
