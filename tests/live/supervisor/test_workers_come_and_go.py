"""Workers that a gateway asks for and ends, with scripted children as real processes."""

import os
import signal
from pathlib import Path

import pytest
from supervision import DEADLINE_S, SLOW, alive

ACTS = {
    "cluster": {"prefill": 1, "decode": 1},
    "planner": {"mode": "act", "budget": 3},
    "engine": {"cores": [0, 1, 2, 3, 4, 5]},
}


def test_a_worker_is_added_on_cores_that_nobody_has_and_ended_and_added_again(supervise) -> None:
    orders = (
        "add:decode-1:decode see:decode-1 ready end:decode-1:1 gone:decode-1 add:decode-1:decode"
    )
    running = supervise({"gateway": f"order {orders}"}, **ACTS)
    running.until(lambda: len(running.lives("decode-1")) == 2)
    assert [" ".join(life[2:]) for life in running.lives("decode-0")] == ["decode (2, 3)"]
    first, second = running.lives("decode-1")
    assert (first[0], second[0]) == ("1", "2"), "names are used again, lives are counted on"
    assert first[3] == second[3] == "(4, 5)"
    assert "Stop()" in running.heard("decode-1")
    assert not alive(int(first[1]))
    assert not running.saw("log decode-1 | ended"), "it was to end, and is not started again"
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert not any(map(alive, running.pids()))


def test_no_more_workers_than_there_are_cores_for(supervise) -> None:
    orders = "add:decode-1:decode see:decode-1 add:decode-2:decode"
    running = supervise({"gateway": f"order {orders}"}, **ACTS)
    running.until(lambda: "NotAdded(worker='decode-2'" in running.heard("gateway"))
    running.until(lambda: running.saw("log decode-2 | could not be added: all cores are taken"))
    assert running.lives("decode-2") == []


def test_no_more_workers_than_there_is_memory_for(supervise) -> None:
    running = supervise(
        {"gateway": "order ready add:decode-1:decode"}, **ACTS, kv={"memory_bytes": "9GiB"}
    )
    running.until(lambda: "NotAdded(worker='decode-1'" in running.heard("gateway"))
    why = "could not be added: kv.memory_bytes = 9GiB is more than is free: 8.0GiB"
    running.until(lambda: running.saw(why))
    assert running.lives("decode-1") == []


def test_one_that_died_and_starts_again_has_its_memory_still_to_take(supervise) -> None:
    """What it had is free now, and is its own: 5 of 8 GiB are not there twice."""
    running = supervise(
        {"gateway": "order killed add:decode-1:decode"},
        cluster={**ACTS["cluster"], "restart_backoff_s": 3600.0},
        planner=ACTS["planner"],
        engine=ACTS["engine"],
        kv={"memory_bytes": "5GiB"},
    )
    running.until(lambda: running.saw("ready it"))
    running.until(lambda: running.heard("gateway").splitlines()[-1].count("state='ready'") == 3)
    os.kill(int(running.lives("decode-0")[0][1]), signal.SIGKILL)
    why = "kv.memory_bytes = 5GiB is more than is free beside 1 that start: 8.0GiB"
    running.until(
        lambda: f"NotAdded(worker='decode-1', why='{why}', order=" in running.heard("gateway")
    )
    assert running.lives("decode-1") == []


@pytest.mark.parametrize("deed", ["end", "restart"])
def test_what_is_ordered_for_another_life_happens_to_nobody(supervise, deed: str) -> None:
    """The order is for the life that was drained: the next one may have been given work."""
    orders = f"ready {deed}:decode-0:2 add:decode-1:decode see:decode-1"
    running = supervise({"gateway": f"order {orders}"}, **ACTS)
    running.until(lambda: "='decode-1'" in running.heard("gateway"))
    assert "state='stopping'" not in running.heard("gateway")
    assert "='decode-0'" in running.heard("gateway").splitlines()[-1]


def test_what_a_worker_says_bears_its_name_once_it_is_not_the_only_one(supervise) -> None:
    running = supervise(
        {
            "gateway": "order ready add:mixed-1:mixed",
            "mixed-0": "say loading",
            "mixed-1": "say loading, too",
        },
        cluster={"mixed": 1},
        planner={"mode": "act", "budget": 2},
        engine={"cores": [0, 1]},
    )
    running.until(lambda: running.saw("loading, too"))
    said = [line for line in running.lines if line.startswith("say ")]
    assert said == ["say loading", "say mixed-1: loading, too"]


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("exit 7", "decode-1 could not be started: it ended before it was ready (exit code 7)"),
        ("refuse no room for its KV", "no room for its KV"),
    ],
)
def test_an_added_worker_that_can_t_start_is_one_line_and_the_server_lives(
    supervise, deed: str, why: str
) -> None:
    """Its cores are free again. Those at the start are tried over and over, or end the server."""
    running = supervise({"gateway": "order add:decode-1:decode", "decode-1": deed}, **ACTS)
    running.until(lambda: "NotAdded(worker='decode-1'" in running.heard("gateway"))
    running.until(lambda: running.saw("decode-1"))
    assert [line for line in running.lines if "decode-1" in line] == [
        f"log decode-1 | could not be added: {why}"
    ]
    assert len(running.lives("decode-1")) == 1
    assert running.process.poll() is None


def test_an_added_worker_without_a_process_is_not_added_and_the_server_lives(
    supervise, tmp_path: Path
) -> None:
    """What fork and exec answer is no end of the server: there may be room again."""
    (tmp_path / "decode-1.python").touch(0o644)
    orders = "add:decode-1:decode refused:decode-1 add:decode-2:decode"
    running = supervise({"gateway": f"order {orders}"}, **ACTS)
    running.until(lambda: bool(running.lives("decode-2")))
    assert running.lives("decode-2")[0][3] == "(4, 5)"
    assert running.saw("log decode-1 | could not be added: decode-1 could not be started")
    assert running.saw("(its process could not be created: [Errno 13] Permission denied")
    assert running.process.poll() is None


def test_one_that_could_not_be_added_leaves_its_cores_to_the_next(supervise) -> None:
    orders = "add:decode-1:decode refused:decode-1 add:decode-2:decode"
    running = supervise({"gateway": f"order {orders}", "decode-1": "exit 1"}, **ACTS)
    running.until(lambda: bool(running.lives("decode-2")))
    assert running.lives("decode-2")[0][3] == "(4, 5)"


def test_what_an_earlier_gateway_asked_for_is_no_order_of_the_next_one(supervise) -> None:
    """Each counts its orders from 1: what becomes of the other's first one settles none of its."""
    running = supervise(
        {
            "gateway": "order add:decode-1:decode:1 see:decode-1 die\n"
            "order add:decode-2:decode:1 refused:decode-2 add:decode-3:decode:2 refused:decode-3",
            "decode-1": "outlive gateway",
            "decode-2": "exit 7",
            "decode-3": "exit 7",
        },
        cluster=ACTS["cluster"],
        planner=ACTS["planner"] | {"budget": 4},
        engine={"cores": [0, 1, 2, 3, 4, 5, 6, 7]},
    )
    running.until(lambda: running.heard("gateway").count("NotAdded(") == 3)
    told = [line for line in running.heard("gateway").splitlines() if "NotAdded(" in line]
    orders = {line.split("'")[1]: line.rpartition("order=")[2] for line in told}
    assert orders == {"decode-1": "0)", "decode-2": "1)", "decode-3": "2)"}


def test_an_added_worker_that_dies_later_is_started_again_like_any_other(supervise) -> None:
    running = supervise({"gateway": "order add:decode-1:decode"}, **ACTS)
    running.until(lambda: bool(running.lives("decode-1")))
    running.until(lambda: running.heard("gateway").splitlines()[-1].count("state='ready'") == 4)
    os.kill(int(running.lives("decode-1")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("decode-1")) == 2)
    assert running.saw(f"log decode-1 | ended (killed by SIGKILL): {SLOW}")


def test_a_killed_supervisor_leaves_no_added_worker(supervise) -> None:
    running = supervise({"gateway": "order add:decode-1:decode"}, **ACTS)
    running.until(lambda: bool(running.lives("decode-1")))
    running.process.kill()
    running.process.wait(DEADLINE_S)
    running.until(lambda: not any(map(alive, running.pids())))
