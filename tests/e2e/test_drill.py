"""Chaos on live processes: a minute of it, with the real model, through the command."""

import json
import subprocess
import sys

import pytest

SHAPE = ("--prefill", "2", "--decode", "2", "--kv-memory", "192MiB")
LOAD = ("--rate", "3", "--asks", "12", "--prompt-words", "10-200", "--max-tokens", "40-120")


def drill(*arguments: str) -> tuple[int, dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "drill", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.parametrize(("kind", "seed"), [("kill", 4), ("stop", 5)])
def test_workers_die_under_load_and_nothing_is_lost(kind: str, seed: int) -> None:
    times = ("--duration", "30", "--every", "4", "--stop-for", "4")
    code, report, said = drill("--kind", kind, "--seed", str(seed), *times, *SHAPE, *LOAD)
    assert code == 0, (report, said)
    assert report["passed"] is True
    assert report["findings"] == report["leftovers"] == report["growth"] == []
    faults = report["faults"]
    assert isinstance(faults, list)
    assert len(faults) >= 2
    assert all(fault["detected_s"] and fault["back_s"] for fault in faults)
    asks = report["asks"]
    assert isinstance(asks, int)
    assert asks > 50


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
