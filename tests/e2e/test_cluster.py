"""Several processes as one server: what they share, and what happens when some of them end."""

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
from e2e_process import START_S, Served, alive, joined, run

Start = Callable[..., Served]
PROMPTS: list[dict[str, Any]] = [
    {"prompt": "the rain in", "max_tokens": 24, "temperature": 0},
    {"prompt": "and then " * 20, "max_tokens": 30, "seed": 7, "temperature": 0.9},
    {"prompt": "one", "max_tokens": 12, "seed": 3, "n": 3, "logprobs": 2},
]


def ask(served: Served, **fields: Any) -> Any:
    body = {"model": "tiny", "ignore_eos": True, **fields}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def answers(served: Served) -> list[Any]:
    return [ask(served, **prompt) for prompt in PROMPTS]


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
        choices = ask(self._served, prompt="go on", max_tokens=60, seed=5, n=2)
        return [choice["text"] for choice in choices]

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


@pytest.fixture
def alone(serve: Start) -> Iterator[list[Any]]:
    """What one mixed worker answers."""
    served = serve()
    yield answers(served)
    assert served.stop() == 0


@pytest.mark.parametrize(
    "workers",
    [
        ("--prefill", "1", "--decode", "1"),
        ("--prefill", "2", "--decode", "1"),
        ("--prefill", "1", "--decode", "2"),
        ("--mixed", "2"),
    ],
    ids=lambda workers: "".join(workers).replace("--", " ").strip(),
)
def test_every_cluster_writes_the_same(serve: Start, alone: list[Any], workers: Any) -> None:
    served = serve(*workers)
    served.until(joined)
    assert answers(served) == alone
    assert served.stop() == 0


def test_status_says_who_is_there(serve: Start) -> None:
    served = serve("--prefill", "1", "--decode", "1")
    served.until(joined)
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
        assert (worker["life"], worker["problem"]) == (1, "")
    assert sorted(served.pids()) == sorted(
        [served.process.pid, status["gateway_pid"], prefill["pid"], decode["pid"]]
    )
    table = run("status", "--url", served.url).stdout
    assert "prefill-0" in table
    assert "joined" in table


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_each_process_loads_only_its_own_half(serve: Start) -> None:
    served = serve()
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


def test_secrets_are_on_no_command_line(serve: Start, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret-key\n")
    keys.chmod(0o600)
    served = serve("--api-key-file", str(keys))
    for pid in served.pids()[1:]:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert len([word for word in line if word]) == 5
        assert b"secret" not in b"".join(line)


def test_a_cluster_file_starts_the_same(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        f'[model]\nname = "{tiny}"\n[http]\nport = 0\n[kv]\nmemory_bytes = "8MiB"\n'
        "[cluster]\nprefill = 1\ndecode = 1\n"
    )
    served = Served("serve", str(file))
    try:
        assert [worker["role"] for worker in served.status()["workers"]] == ["prefill", "decode"]
        assert served.stop() == 0
    finally:
        served.process.kill()


@pytest.mark.parametrize(
    ("workers", "victim"),
    [
        (("--mixed", "2"), "mixed-0"),
        (("--prefill", "1", "--decode", "2"), "decode-1"),
        (("--prefill", "1", "--decode", "1"), "prefill-0"),
    ],
)
def test_a_killed_worker_comes_back_and_no_request_is_lost(
    serve: Start, workers: Any, victim: str
) -> None:
    served = serve(*workers)
    before = next(w for w in served.until(joined)["workers"] if w["id"] == victim)
    with Load(served) as load:
        load.until_more()
        os.kill(before["pid"], signal.SIGKILL)
        served.until(
            lambda s: joined(s) and served.worker(victim)["incarnation"] != before["incarnation"]
        )
        load.until_more()
    after = served.worker(victim)
    assert after["pid"] != before["pid"]
    assert after["life"] == 2
    assert any(f"{victim} | ended (killed by SIGKILL)" in line for line in served.output)
    assert served.stop() == 0


def test_a_killed_gateway_is_replaced_and_nobody_is_refused_meanwhile(serve: Start) -> None:
    served = serve("--prefill", "1", "--decode", "1")
    before = served.until(joined)
    expected = answers(served)
    os.kill(before["gateway_pid"], signal.SIGKILL)
    assert httpx.get(f"{served.url}/health", timeout=60).status_code == 200
    after = served.until(lambda s: s["gateway_pid"] != before["gateway_pid"] and joined(s))
    assert [w["pid"] for w in after["workers"]] == [w["pid"] for w in before["workers"]]
    assert answers(served) == expected
    assert served.stop() == 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_supervisor_leaves_nothing(serve: Start, stopped: bool) -> None:
    served = serve("--prefill", "1", "--decode", "1")
    pids = served.pids()
    assert len(pids) == 4
    if stopped:
        served.process.send_signal(signal.SIGSTOP)
    served.process.kill()
    served.process.wait(60)
    end = time.monotonic() + 60
    while any(map(alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_worker_flips_and_flips_back_under_load(serve: Start) -> None:
    served = serve("--prefill", "1", "--decode", "2")
    before = {w["id"]: w for w in served.until(joined)["workers"]}
    with Load(served) as load:
        load.until_more()
        for role in ("prefill", "decode"):
            done = run("role", "decode-1", role, "--timeout", "20", "--url", served.url)
            assert done.returncode == 0, done.stderr
            worker = served.worker("decode-1")
            assert (worker["role"], worker["health"]) == (role, "joined")
            assert worker["pid"] == before["decode-1"]["pid"]
            load.until_more()
    assert served.stop() == 0


def test_a_drained_worker_is_idle_until_it_is_wanted_again(serve: Start) -> None:
    served = serve("--mixed", "2")
    served.until(joined)
    with Load(served) as load:
        load.until_more()
        done = run("drain", "mixed-0", "--timeout", "0", "--url", served.url)
        assert done.returncode == 0, done.stderr
        load.until_more()
        worker = served.worker("mixed-0")
        assert (worker["health"], worker["running"], worker["waiting"]) == ("draining", 0, 0)
        refused = run("drain", "mixed-1", "--url", served.url)
        assert refused.returncode == 1
        assert "last worker that decodes" in refused.stderr
        assert run("role", "mixed-0", "mixed", "--url", served.url).returncode == 0
        served.until(joined)
        load.until_more()
    assert served.stop() == 0


def test_a_rolling_restart_loses_nothing(serve: Start) -> None:
    served = serve("--prefill", "1", "--decode", "2")
    before = {w["id"]: w for w in served.until(joined)["workers"]}
    with Load(served) as load:
        load.until_more()
        done = run("restart", "--timeout", "20", "--url", served.url)
        assert done.returncode == 0, done.stderr
        load.until_more()
    after = {w["id"]: w for w in served.until(joined)["workers"]}
    assert list(after) == list(before)
    assert all(after[id]["pid"] != before[id]["pid"] for id in before)
    assert served.stop() == 0


def test_a_worker_that_nobody_knows_is_named_with_those_that_are_there(serve: Start) -> None:
    served = serve()
    done = run("drain", "mixed-7", "--url", served.url)
    assert done.returncode == 2
    assert "known are mixed-0" in done.stderr
