"""A server that grows and shrinks with its load, as a user sees it, with a tiny model."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import ask
from e2e_process import Served, alive, config_file, joined, run

Start = Callable[..., Served]
STORY: dict[str, Any] = {
    "model": "tiny",
    "prompt": "it was so " * 10,
    "max_tokens": 200,
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
        cluster={"heartbeat_s": 0.1, "restart_backoff_s": 0.05},
        store={"enabled": False},
        planner={"interval_s": 0.3, "ready_s": 1.0, "clear_s": 1.0, "cool_down_s": 1.0},
    )


@contextmanager
def load(served: Served, *, breaks: bool = False) -> Iterator[None]:
    """Clients that ask one request after the other; each answer must be whole and always equal,
    unless the server is to break."""
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
    assert breaks or not problems


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
        assert metrics("antiphon_planner_target_workers", role="mixed") == 2
        assert metrics("antiphon_planner_moves_total", move="add") == 1
        shown = run("status", "--url", served.url).stdout
        assert "planner (act, at most 2 workers) wants 2 mixed: " in shown
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
    replayed = run("replay", str(log), "--json")
    assert replayed.returncode == 0, replayed.stdout
    assert json.loads(replayed.stdout)["equal"] is True
    assert '"machine":"planner"' in log.read_text()


def test_advice_changes_nothing(serve: Start, settings: Path) -> None:
    served = serve(
        *("--config", str(settings), "--mixed", "1", "--planner", "advise", "--budget", "2")
    )
    before = served.pids()
    with load(served):
        served.until(
            lambda status: any("add 1 mixed" in one["moves"] for one in _decisions(status))
        )
        shown = run("status", "--url", served.url).stdout
        assert "would add 1 mixed (" in shown
    assert sorted(served.pids()) == sorted(before)
    assert served.metrics()("antiphon_planner_moves_total") == 0
    assert served.stop() == 0


def test_a_killed_server_leaves_no_worker_that_was_added(serve: Start, settings: Path) -> None:
    served = serve(
        *("--config", str(settings), "--mixed", "1", "--planner", "act", "--budget", "2")
    )
    with load(served, breaks=True):
        served.until(lambda status: len(names(status)) == 2)
        pids = served.pids()
        served.process.send_signal(signal.SIGKILL)
        served.process.wait(60)
    assert len(pids) == 4
    _until_dead(pids)


def _decisions(status: dict[str, Any]) -> list[dict[str, Any]]:
    planner = status["planner"]
    return [] if planner is None else planner["decisions"]


def _until_dead(pids: list[int]) -> None:
    waited = threading.Event()
    for _ in range(600):
        if not any(map(alive, pids)):
            return
        waited.wait(0.1)
    raise AssertionError("they still run")
