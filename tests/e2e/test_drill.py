"""Chaos on live processes, through the command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_here import run_here

LOST_AFTER_S = 5
"""How long silence takes to tell of a dead worker; a closed stream tells at once."""
NOTHING_TESTED = "no request was interrupted: nothing was put to the test"
PLAN = """
seed = 35

[load]
rate = 12
duration = "8s"
asks = 8
prompt-words = "10-200"
max-tokens = "200-500"

[[fault]]
at = "1.9s"
target = "decode-0"
action = "kill"

[[fault]]
at = "3s"
target = "decode-1"
action = "stop"
for = "0.5s"

[[fault]]
at = "5s"
target = "decode-1"
action = "stop"
for = "12s"
"""
"""By the seed a dozen long answers begin in the third of a second before the kill."""


def drill(*arguments: str) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "drill", *arguments, "--kv-memory", "8MiB", "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_workers_die_and_stand_still_under_load_and_nothing_is_lost(
    tiny: Path, tmp_path: Path
) -> None:
    """A closed stream tells of a dead worker, silence of a stopped one, and a short silence of
    nothing."""
    config, plan = tmp_path / "cluster.toml", tmp_path / "plan.toml"
    config.write_text(f"[cluster]\nlost_after_s = {LOST_AFTER_S}\n")
    plan.write_text(PLAN)
    code, report, said = drill(str(tiny), "--plan", str(plan), "--config", str(config))
    assert code == 0, (report, said)
    assert report["passed"] is True
    assert report["findings"] == report["leftovers"] == report["growth"] == []
    assert report["asks"] > 40
    killed, paused, stopped = report["faults"]
    assert all(fault["back_s"] is not None for fault in report["faults"])
    assert paused["detected_s"] is None, "its streams were to be kept"
    assert LOST_AFTER_S - 1 < stopped["detected_s"] < 12, "not given up while it stood still"
    after_kill = [one for one in report["recoveries"] if one["worker"] == killed["target"]]
    after_stop = [one for one in report["recoveries"] if one["worker"] == stopped["target"]]
    assert after_kill, NOTHING_TESTED
    assert after_stop, NOTHING_TESTED
    assert all(one["detection_s"] < LOST_AFTER_S / 2 for one in after_kill)


def test_a_cluster_of_one_has_nobody_who_could_be_spared(tiny: Path) -> None:
    """It is refused before it starts: a drill that tested nothing would not have passed."""
    shape = ("--prefill", "0", "--decode", "0", "--mixed", "1")
    done = run_here("drill", str(tiny), "--kind", "mixed", *shape)
    assert done.returncode == 2
    assert "no worker can be spared" in done.stderr


def test_nobody_serves_there() -> None:
    done = run_here("drill", "--url", "http://127.0.0.1:9")
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
    assert done.returncode == 2
    assert "no such file or folder" in done.stderr
