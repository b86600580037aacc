"""Several processes as one server: what they share, and what happens when some of them end."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import add_line, ask, lines_of
from e2e_process import (
    START_S,
    Served,
    alive,
    at_rest,
    config_file,
    joined,
    run,
    standing_still,
)

from command_here import run_here

Start = Callable[..., Served]
Cluster = Callable[[str], Served]
TALE: dict[str, Any] = {
    "model": "tiny",
    "prompt": "it was so " * 40,
    "max_tokens": 500,
    "ignore_eos": True,
    "seed": 9,
    "n": 2,
}


class Load:
    """Clients that ask one request after the other; each answer must be whole and always equal."""

    def __init__(self, served: Served, clients: int = 4) -> None:
        self._served = served
        self._stop = threading.Event()
        self.problems: list[str] = []
        self.done = 0
        self._expected = self._ask()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def _ask(self) -> list[str]:
        body = {**TALE, "prompt": "go on", "max_tokens": 60}
        return [choice["text"] for choice in ask(self._served, **body)]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._ask() != self._expected:
                    self.problems.append("another text")
                self.done += 1
            except (AssertionError, httpx.HTTPError) as error:
                self.problems.append(f"{type(error).__name__}: {error}")

    def until_more(self, requests: int = 8) -> None:
        """Wait until so many more have been answered."""
        goal, end = self.done + requests, time.monotonic() + START_S
        while self.done < goal:
            assert not self.problems, self.problems
            assert time.monotonic() < end
            time.sleep(0.01)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.problems, self.problems


def test_status_says_who_is_there(cluster: Cluster) -> None:
    served = cluster("1P1D")
    served.until_metrics(at_rest)
    shown = run("status", "--json", "--url", served.url)
    assert shown.returncode == 0, shown.stderr
    status = json.loads(shown.stdout)
    assert (status["model"], status["state"]) == ("tiny", "ready")
    prefill, decode = status["workers"]
    assert (prefill["id"], decode["id"]) == ("prefill-0", "decode-0")
    for worker in (prefill, decode):
        assert worker["role"] == worker["id"].partition("-")[0]
        assert (worker["running"], worker["waiting"], worker["kv_used"]) == (0, 0, 0.0)
        assert alive(worker["pid"])
        assert set(worker["cores"]) == os.sched_getaffinity(worker["pid"])
        assert len(worker["incarnation"]) >= 16
        assert worker["life"] >= 1
        assert worker["problem"] == ""
    store = status["store"]
    assert store["health"] == "ready"
    assert store["life"] >= 1
    pids = [served.process.pid, status["gateway_pid"], store["pid"], prefill["pid"], decode["pid"]]
    assert sorted(served.pids()) == sorted(pids)
    table = run("status", "--url", served.url).stdout
    assert "prefill-0" in table
    assert "joined" in table


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_each_process_loads_only_its_own_half(cluster: Cluster) -> None:
    served = cluster("1M")
    status = served.status()
    gateway, worker = maps(status["gateway_pid"]), maps(status["workers"][0]["pid"])
    supervisor = maps(served.process.pid)
    assert "libtorch" in worker
    assert "llvmlite" in worker
    assert "tokenizers" in gateway
    for name in ("libtorch", "llvmlite", "numba"):
        assert name not in gateway
        assert name not in supervisor
    for name in ("pydantic_core", "httptools", "tokenizers"):
        assert name not in worker
    for name in ("httptools", "tokenizers", "uvloop"):  # typer itself loads pydantic
        assert name not in supervisor


class Tale:
    """A stream that one worker is in the middle of; `rest` is what one undisturbed says."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._expected = ask(served, **TALE)
        self._retries = served.metrics()("antiphon_retries_total")
        self._lines: Iterator[str] = iter(())
        self._choices: dict[int, dict[str, Any]] = {}

    @contextlib.contextmanager
    def begun(self) -> Iterator[dict[str, Any]]:
        """Yields the worker that is decoding it, once it has said something."""
        url = f"{self._served.url}/v1/completions"
        with httpx.stream("POST", url, json={**TALE, "stream": True}, timeout=120) as response:
            self._lines = lines_of(response)
            for _ in range(6):
                add_line(self._choices, next(self._lines))
            status = self._served.until(lambda s: len(decoding(s)) == 1)
            yield decoding(status)[0]

    @contextlib.contextmanager
    def stopped(self) -> Iterator[dict[str, Any]]:
        """Yields the worker that is decoding it, which stands still and has more to say.

        A tale that was over before it could be stopped is begun anew.
        """
        while True:
            self._choices.clear()
            with self.begun() as worker, standing_still(worker["pid"]):
                self._catch_up()
                if self._served.status()["open_requests"]:
                    yield worker
                    return

    def _catch_up(self) -> None:
        """Wait until the gateway has dealt with all that a stopped worker had said."""
        said = -1.0
        while said != (said := self._served.metrics()("vllm:generation_tokens_total")):
            time.sleep(0.05)

    def ends_well(self, *, retries: int) -> None:
        """Read it to its end: nothing is lost, nothing twice."""
        for line in self._lines:
            add_line(self._choices, line)
        assert [self._choices[index] for index in sorted(self._choices)] == self._expected
        after = self._served.until_metrics(at_rest)("antiphon_retries_total")
        assert after - self._retries == retries


def decoding(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [w for w in status["workers"] if w["running"] and w["role"] != "prefill"]


def back_again(before: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """All are there, and this one in another life."""
    id = before["id"]
    return lambda status: (
        joined(status)
        and all(
            worker["incarnation"] != before["incarnation"]
            for worker in status["workers"]
            if worker["id"] == id
        )
    )


def lives(status: dict[str, Any], but: str) -> dict[str, int]:
    return {w["id"]: w["pid"] for w in status["workers"] if w["id"] != but}


@pytest.mark.parametrize(("shape", "victim"), [("1P2D", "decode-1"), ("1P1D", "prefill-0")])
def test_a_killed_worker_comes_back_and_no_request_is_lost(
    cluster: Cluster, shape: str, victim: str
) -> None:
    served = cluster(shape)
    before, others = served.worker(victim), lives(served.status(), but=victim)
    with Load(served) as load:
        load.until_more()
        os.kill(before["pid"], signal.SIGKILL)
        status = served.until(back_again(before))
        load.until_more()
    after = next(worker for worker in status["workers"] if worker["id"] == victim)
    assert after["pid"] != before["pid"]
    assert after["life"] == before["life"] + 1
    assert lives(status, but=victim) == others, "nobody else had to be restarted"
    assert any(f"{victim} | ended (killed by SIGKILL)" in line for line in served.output)
    served.until_metrics(at_rest)


@pytest.mark.parametrize("shape", ["1P2D", "1P1D"])
def test_a_worker_killed_in_mid_stream_is_not_noticed(cluster: Cluster, shape: str) -> None:
    served = cluster(shape)
    tale = Tale(served)
    with tale.stopped() as worker:
        os.kill(worker["pid"], signal.SIGKILL)
        tale.ends_well(retries=1)
    served.until(back_again(worker))


def test_a_worker_that_stands_still_too_long_does_no_harm_when_it_goes_on(
    cluster: Cluster,
) -> None:
    """It finds out by itself that it was given up: what it still has of the stream is worth
    nothing, and it joins in another life of the same process."""
    served = cluster("1P2D")
    tale = Tale(served)
    with tale.stopped() as worker:
        tale.ends_well(retries=1)
    after = served.until(back_again(worker))
    same = next(one for one in after["workers"] if one["id"] == worker["id"])
    assert same["pid"] == worker["pid"]
    assert same["life"] == worker["life"]
    Tale(served)
    served.until_metrics(at_rest)


def test_a_worker_that_hangs_for_ever_is_replaced(serve: Start, tiny: Path, tmp_path: Path) -> None:
    file = config_file(
        tmp_path / "cluster.toml",
        model={"name": str(tiny)},
        cluster={"heartbeat_s": 0.1, "restart_backoff_s": 0.05, "hung_after_s": 1.0},
    )
    served = serve("--mixed", "2", model=file)
    before = served.until(joined)["workers"][1]
    os.kill(before["pid"], signal.SIGSTOP)
    after = served.until(back_again(before))["workers"][1]
    assert after["pid"] != before["pid"]
    assert after["life"] == before["life"] + 1
    assert not alive(before["pid"])
    reason = "mixed-1 | ended (its process hung: not with the gateway for 1 s)"
    assert any(reason in line for line in served.output)


def test_a_killed_gateway_is_replaced_and_nobody_is_refused_meanwhile(cluster: Cluster) -> None:
    """Its workers free what it had asked for, and join the next one."""
    served = cluster("1P1D")
    before = served.status()
    expected = ask(served, **TALE)
    with Tale(served).begun():
        os.kill(before["gateway_pid"], signal.SIGKILL)
        assert httpx.get(f"{served.url}/health", timeout=60).status_code == 200
    after = served.until(lambda s: s["gateway_pid"] != before["gateway_pid"] and joined(s))
    for old, new in zip(before["workers"], after["workers"], strict=True):
        assert new["pid"] == old["pid"]
        assert new["incarnation"] != old["incarnation"]
    served.until_metrics(at_rest)
    assert ask(served, **TALE) == expected


def test_a_killed_supervisor_leaves_nothing(serve: Start) -> None:
    """Even one that could not say a word, since it had been stopped."""
    served = serve("--prefill", "1", "--decode", "1")
    pids = served.pids()
    assert len(pids) == 5, "the supervisor, a gateway, a store and two workers"
    served.process.send_signal(signal.SIGSTOP)
    served.process.kill()
    served.process.wait(60)
    end = time.monotonic() + 60
    while any(map(alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_worker_flips_and_flips_back_under_load(cluster: Cluster) -> None:
    served = cluster("1P2D")
    before = {w["id"]: w for w in served.status()["workers"]}
    with Load(served) as load:
        load.until_more()
        for role in ("prefill", "decode"):
            done = run_here("role", "decode-1", role, "--timeout", "20", "--url", served.url)
            assert done.returncode == 0, done.stderr
            worker = {w["id"]: w for w in served.until(joined)["workers"]}["decode-1"]
            assert worker["role"] == role
            assert worker["pid"] == before["decode-1"]["pid"]
            load.until_more()


def test_a_drained_worker_is_idle_until_it_is_wanted_again(cluster: Cluster) -> None:
    served = cluster("1P2D")
    with Load(served) as load:
        load.until_more()
        done = run_here("drain", "decode-0", "--timeout", "0", "--url", served.url)
        assert done.returncode == 0, done.stderr
        load.until_more()
        worker = served.worker("decode-0")
        assert (worker["health"], worker["running"], worker["waiting"]) == ("draining", 0, 0)
        refused = run_here("drain", "decode-1", "--url", served.url)
        assert refused.returncode == 1
        assert "last worker that decodes" in refused.stderr
        assert run_here("role", "decode-0", "decode", "--url", served.url).returncode == 0
        served.until(joined)
        load.until_more()


def test_a_rolling_restart_loses_nothing(cluster: Cluster) -> None:
    served = cluster("1P2D")
    before = {w["id"]: w for w in served.status()["workers"]}
    with Load(served) as load:
        load.until_more()
        done = run_here("restart", "--timeout", "20", "--url", served.url)
        assert done.returncode == 0, done.stderr
        load.until_more()
    after = {w["id"]: w for w in served.until(joined)["workers"]}
    assert list(after) == list(before)
    assert all(after[id]["pid"] != before[id]["pid"] for id in before)


def test_a_worker_that_nobody_knows_is_named_with_those_that_are_there(cluster: Cluster) -> None:
    served = cluster("1M")
    done = run_here("drain", "mixed-7", "--url", served.url)
    assert done.returncode == 2
    assert "known are mixed-0" in done.stderr
