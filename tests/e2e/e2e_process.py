"""An `antiphon` process, started as a user would."""

import re
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

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

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and return its exit code."""
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(60)
        for thread in self._threads:
            thread.join(10)
        return code


def antiphon(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return subprocess.run(antiphon(*arguments), capture_output=True, text=True, timeout=120)
