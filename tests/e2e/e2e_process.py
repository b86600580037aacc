"""An `antiphon` process, started as a user would."""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.errors import PeerError
from antiphon.live.admin.client import find_server

START_S = 120.0
"""The first start of all converts weights and compiles kernels."""
WAIT_S = 60.0
"""For what takes a moment, the restart of a worker at most."""
LOOK_S = 0.04
"""Between two looks at what is waited for: each costs the server time, too."""
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For calls without TLS: to read the system's certificates takes longer than most of them."""

SHAPES = {
    "1M": ("--mixed", "1"),
    "1P1D": ("--prefill", "1", "--decode", "1"),
    "1P2D": ("--prefill", "1", "--decode", "2"),
}
"""Options of a cluster, by its shape."""


class Served:
    """An `antiphon serve` process that has said where it listens."""

    def __init__(self, *arguments: str, prefix: Sequence[str] = ()) -> None:
        """`prefix`: what runs the command, such as `ip netns exec box1`."""
        self.process = subprocess.Popen(
            [*prefix, *antiphon(*arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.output: list[str] = []
        self._ready = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for thread in self._threads:
            thread.start()
        self.url = self._wait()
        self.port = int(self.url.rpartition(":")[2])

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.output.append(line)
            if line.startswith("Docs: "):
                self._ready.set()
        self._ready.set()

    def _wait(self) -> str:
        self._ready.wait(START_S)
        url = re.search(r"serves .+ on (http://\S+)", "".join(self.output))
        if url is None:
            self.process.kill()
            pytest.fail(f"the server did not start: {''.join(self.output)}")
        return url[1]

    def status(self) -> dict[str, Any]:
        """What `antiphon status --json` shows."""
        status: dict[str, Any] = find_server(self.url, None).get("/admin/status")
        return status

    def worker(self, id: str) -> dict[str, Any]:
        """One worker's part of the status."""
        return next(row for row in self.status()["workers"] if row["id"] == id)

    def until(
        self, condition: Callable[[dict[str, Any]], bool], wait_s: float = WAIT_S
    ) -> dict[str, Any]:
        """Wait for a status like that and return it."""
        return self._until(self.status, condition, wait_s)

    def until_metrics(self, condition: Callable[["Metrics"], bool]) -> "Metrics":
        """Wait for metrics like that and return them."""
        return self._until(self.metrics, condition, WAIT_S)

    def _until(
        self, look: Callable[[], Any], condition: Callable[[Any], bool], wait_s: float = WAIT_S
    ) -> Any:
        end = time.monotonic() + wait_s
        seen = None
        while True:
            with contextlib.suppress(PeerError, httpx.HTTPError):  # the gateway may start anew
                seen = look()
                if condition(seen):
                    return seen
            assert self.process.poll() is None, "".join(self.output)
            assert time.monotonic() < end, f"{seen}\n{''.join(self.output)}"
            time.sleep(LOOK_S)

    def metrics(self) -> "Metrics":
        """What `/metrics` shows."""
        return Metrics(httpx.get(f"{self.url}/metrics", timeout=60, verify=PLAIN).text)

    def pids(self) -> list[int]:
        """The supervisor's and those of its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and return its exit code."""
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(60)
        for thread in self._threads:
            thread.join(10)
        return code


class Metrics:
    """One reading of a server's metrics."""

    def __init__(self, page: str) -> None:
        self._samples = [
            (name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
            for name, labels, value in re.findall(r"^(\S+)\{(.*)\} (\S+)$", page, re.M)
        ]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum over all samples of that name with those labels."""
        return sum(
            value
            for sample, own, value in self._samples
            if sample == name and labels.items() <= own.items()
        )

    def __repr__(self) -> str:
        return repr([sample for sample in self._samples if "bucket" not in sample[0]])


def at_rest(metrics: Metrics) -> bool:
    """No worker and no gateway holds anything for anybody."""
    return not any(
        metrics(name)
        for name in (
            "vllm:num_requests_running",
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
            "antiphon_waiting_tokens",
            "antiphon_pulling_requests",
            "antiphon_offered_pages",
            "antiphon_worker_leases",
            "antiphon_held_requests",
            "antiphon_leases",
        )
    )


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process gets no time meanwhile. It may be killed meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def joined(status: dict[str, Any]) -> bool:
    """All workers are there."""
    return all(worker["health"] == "joined" for worker in status["workers"])


def config_file(path: Path, **sections: dict[str, Any]) -> Path:
    """Write a configuration file; returns its path."""
    lines = [
        line
        for section, values in sections.items()
        for line in (f"[{section}]", *(f"{k} = {json.dumps(v)}" for k, v in values.items()))
    ]
    path.write_text("\n".join(lines))
    return path


def antiphon(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(antiphon(*arguments), capture_output=True, text=True, timeout=120)
