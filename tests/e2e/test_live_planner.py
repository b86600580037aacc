"""A server that grows and shrinks with its load, as a user sees it, with a tiny model."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import ask
from e2e_process import Served, alive, config_file, joined

from antiphon.core.planner import PLANNER
from antiphon.core.recorded_run import fresh_machines
from antiphon.core.recorder import replay
from antiphon.perf import read_times
from antiphon.wire import read_decision_log
from command_here import run_here

Start = Callable[..., Served]
STORY: dict[str, Any] = {
    "model": "tiny",
    "prompt": "it was so " * 10,
    "max_tokens": 120,
    "ignore_eos": True,
    "seed": 9,
}
CLIENTS = 8
"""With room for two sequences a worker, this is work for all workers that there may be."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A planner in a hurry, and workers that two sequences fill."""
    return config_file(
        tmp_path / "settings.toml",
        scheduler={"max_num_seqs": 2},
        cluster={"heartbeat_s": 0.1, "lost_after_s": 20},
        store={"enabled": False},
        planner={"interval_s": 0.3, "ready_s": 1.0, "clear_s": 1.0, "cool_down_s": 1.0},
    )


@contextmanager
def load(served: Served) -> Iterator[None]:
    """Clients that ask one request after the other; each answer must be whole and always equal."""
    expected = ask(served, **STORY)[0]["text"]
    stop, problems = threading.Event(), list[str]()

    def go() -> None:
        while not stop.is_set():
            try:
                if ask(served, **STORY)[0]["text"] != expected:
                    problems.append("another text")
            except (AssertionError, httpx.HTTPError) as error:
                problems.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=go) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not problems


def names(status: dict[str, Any]) -> list[str]:
    return [worker["id"] for worker in status["workers"]]


def test_load_rises_and_falls_and_so_do_the_workers(
    serve: Start, settings: Path, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    served = serve(
        *("--config", str(settings), "--mixed", "1", "--planner", "act", "--budget", "2"),
        *("--decision-log", str(log)),
    )
    most = 0

    def seen(condition: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], bool]:
        def look(status: dict[str, Any]) -> bool:
            nonlocal most
            most = max(most, len(status["workers"]))
            return condition(status)

        return look

    with load(served):
        status = served.until(seen(lambda status: len(names(status)) == 2 and joined(status)))
        assert names(status) == ["mixed-0", "mixed-1"]
        added = status["workers"][1]
        pids = {worker["id"]: worker["pid"] for worker in status["workers"]}
        assert set(added["cores"]) == os.sched_getaffinity(added["pid"])
        served.until_metrics(lambda metrics: metrics("antiphon_steps_total", worker="mixed-1") > 50)
        metrics = served.metrics()
        assert metrics("antiphon_worker_pace", worker="mixed-0") > 0
        assert metrics("antiphon_planner_target_workers", role="mixed") == 2
        assert metrics("antiphon_planner_moves_total", move="add") == 1
    status = served.until(seen(lambda status: len(names(status)) == 1))
    [gone] = pids.keys() - set(names(status))
    assert not alive(pids[gone])
    assert most == 2, "there is no room for more"
    assert ask(served, **STORY)[0]["text"]
    planner = served.status()["planner"]
    assert planner["ready_s"] > 0
    moves = [move for decision in planner["decisions"] for move in decision["moves"]]
    assert moves[-1] == "add 1 mixed"
    assert "end 1 mixed" in moves
    assert not [line for line in served.output if "lost" in line or "could not" in line]
    assert served.stop() == 0
    with log.open("rb") as lines:
        recorded = read_decision_log(lines)
        step_tokens = recorded.setup.config.scheduler.max_batched_tokens
        times = read_times(recorded.setup.times, step_tokens=step_tokens)
        entries = list(recorded.entries)
        assert list(replay(entries, fresh_machines(recorded.setup, times))) == []
    assert sum(entry.machine == PLANNER for entry in entries) > 5


def test_advice_changes_nothing(serve: Start, settings: Path) -> None:
    served = serve(
        *("--config", str(settings), "--mixed", "1", "--planner", "advise", "--budget", "2")
    )
    before = served.pids()
    with load(served):
        served.until(lambda status: any("add 1 mixed" in one["moves"] for one in decisions(status)))
        shown = run_here("status", "--url", served.url).stdout
        assert "would add 1 mixed (" in shown
    assert sorted(served.pids()) == sorted(before)
    assert served.metrics()("antiphon_planner_moves_total") == 0
    assert served.stop() == 0


def decisions(status: dict[str, Any]) -> list[dict[str, Any]]:
    planner = status["planner"]
    return [] if planner is None else planner["decisions"]
