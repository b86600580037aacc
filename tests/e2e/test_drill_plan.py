"""Every action of a fault plan, on a small live cluster, through the command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PLAN = """
seed = 5

[load]
rate = 10
duration = "11s"
asks = 6
prompt-words = "70-150"
max-tokens = "20-60"

[[fault]]
at = "0.2s"
target = "gateway"
action = "delay"
by = "50ms"
for = "0.5s"

[[fault]]
at = "1s"
target = "gateway"
action = "cut"

[[fault]]
at = "1.5s"
target = "decode-1"
action = "cut"

[[fault]]
at = "1.5s"
action = "corrupt"

[[fault]]
at = "2s"
action = "fill-disk"
for = "1.5s"

[[fault]]
after-event = "offer"
occurrence = 5
target = "prefill-1"
action = "drain"
for = "0.5s"

[[fault]]
at = "2s"
target = "decode-1"
action = "stop"

[[fault]]
at = "3s"
target = "decode-1"
action = "resume"

[[fault]]
at = "3s"
target = "prefill-0"
action = "slow"
factor = 3
for = "1s"

[[fault]]
at = "4.5s"
target = "random"
action = "kill"

[[fault]]
at = "5s"
target = "store"
action = "restart"

[[fault]]
at = "10s"
target = "gateway"
action = "restart"
"""
DONE = [
    *("corrupt", "cut", "cut", "delay", "drain", "fill-disk", "kill", "restart", "restart"),
    *("resume", "slow", "stop"),
]
CLUSTER = ("--kv-memory", "8MiB", "--prefill", "2", "--decode", "2")


def antiphon(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", "drill", *arguments]


def test_every_action_happens_and_no_answer_is_wrong(tiny: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    output = tmp_path / "out"
    done = subprocess.run(
        antiphon(str(tiny), "--plan", str(plan), "--json", "-o", str(output), *CLUSTER),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["passed"] is True
    assert sorted(fault["kind"] for fault in report["faults"]) == DONE
    assert all(fault["back_s"] is not None for fault in report["faults"])
    assert all(fault["evidence"] for fault in report["faults"])
    assert report["not_injected"] == []
    assert report["resilience"]["reference"] > 0
    assert len(report["resilience"]["impacts"]) == len(DONE)
    assert report["repeats"]["wasted_tokens"] >= 0
    assert json.loads((output / "drill.json").read_text()) == report
    assert "<svg" in (output / "timeline.svg").read_text()


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def under_way(tiny: Path) -> Iterator[subprocess.Popen[str]]:
    """A drill whose load has begun."""
    shape = ("--kv-memory", "8MiB", "--prefill", "0", "--decode", "0", "--mixed", "2")
    with subprocess.Popen(
        antiphon(str(tiny), "--duration", "600", "--asks", "2", "--every", "500", *shape),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as drill:
        assert drill.stderr is not None
        for line in drill.stderr:
            if line.startswith("Load with faults"):
                break
        yield drill
        drill.kill()


def test_a_drill_that_is_killed_leaves_no_cluster(under_way: subprocess.Popen[str]) -> None:
    (server,) = children_of(under_way.pid)
    others = children_of(server)
    assert len(others) >= 2
    os.kill(under_way.pid, signal.SIGKILL)
    while any(map(alive, [server, *others])):  # the suite's time limit ends it
        os.sched_yield()


def test_ctrl_c_ends_a_drill_with_its_cluster_and_without_a_traceback(
    under_way: subprocess.Popen[str],
) -> None:
    """A terminal sends it to all processes of the command."""
    (server,) = children_of(under_way.pid)
    os.killpg(under_way.pid, signal.SIGINT)
    assert under_way.wait() == 130
    assert under_way.stderr is not None
    assert "Traceback" not in under_way.stderr.read()
    assert not alive(server)
