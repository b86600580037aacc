"""`antiphon serve` measured by `antiphon bench`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_process import Served

from command_here import run_here

LOAD = ("--workload", "fixed:input=16,output=8", "--rate", "4", "--duration", "5s")
LAX = ("--slo", "ttft=60s,tpot=60s")


@pytest.fixture(scope="module")
def served(tiny: Path) -> Iterator[Served]:
    named = ("--served-model-name", "tiny", "--max-model-len", "4096")
    server = Served("serve", str(tiny), "--port", "0", "--kv-memory", "8MiB", *named)
    yield server
    assert server.stop() == 0, "".join(server.output)


def bench(*arguments: str) -> Any:
    return run_here("bench", *arguments)


def test_our_own_server_is_measured(served: Served, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = bench(served.url, *LOAD, *LAX, "--warmup", "1s", "-o", str(folder))
    assert done.returncode == 0, done.stderr
    files = {"run.json", "requests.jsonl", "summary.json", "report.html"}
    assert {file.name for file in folder.iterdir()} == files
    run = json.loads((folder / "run.json").read_text())
    assert (run["model"], run["warmup_s"]) == ("tiny", 1.0)
    assert not any("refuses" in note for note in run["notes"])
    records = [json.loads(line) for line in (folder / "requests.jsonl").open()]
    assert len(records) > 5
    for record in records:
        assert record["error"] is None, record
        assert (record["output_tokens"], record["counted_by"]) == (8, "usage")
        assert record["prompt_tokens"] >= 16
        assert record["request_id"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ok"] == summary["calls"] == sum(one["due_at_s"] >= 1.0 for one in records)
    assert summary["goodput_per_s"] > 0
    links = re.findall(
        r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", (folder / "report.html").read_text()
    )
    assert links
    assert all(link.startswith("#") for link in links)


def test_an_agent_s_workflow_ends_whole(served: Served) -> None:
    """Turns quote what others were answered: the tiny model's odd texts go back to it."""
    workload = "agents:fan_out=2,tool_gap=50ms"
    options = ("--workload", workload, "--rate", "5", "--duration", "2s", "--warmup", "0s")
    done = bench(served.url, *options, *LAX, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["sessions"]["most_calls"] == 4
    assert summary["ok"] == summary["calls"] > 0
