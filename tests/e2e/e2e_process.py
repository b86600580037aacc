"""An `antiphon` process, started as a user would."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import PeerError
from antiphon.live.admin.client import find_server

START_S = 120.0
"""The first start of all converts weights and compiles kernels."""


class Served:
    """An `antiphon serve` process that has said where it listens."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            antiphon(*arguments),
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

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a status like that and return it."""
        end = time.monotonic() + START_S
        while True:
            with contextlib.suppress(PeerError):  # the gateway may be starting anew
                status = self.status()
                if condition(status):
                    return status
            assert self.process.poll() is None, "".join(self.output)
            assert time.monotonic() < end, "".join(self.output)
            time.sleep(0.02)

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


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def joined(status: dict[str, Any]) -> bool:
    """All workers are there."""
    return all(worker["health"] == "joined" for worker in status["workers"])


def antiphon(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(antiphon(*arguments), capture_output=True, text=True, timeout=120)
