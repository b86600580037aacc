"""A supervisor of scripted children in a process of its own, and what a test sees of it."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PROGRAM = Path(__file__).parent / "supervised.py"
DEADLINE_S = 60.0
SLOW = "started again in 0.05 s"


class Supervised:
    """A running `supervised.py`; whatever it has printed is in `lines`."""

    def __init__(self, folder: Path, **tables: dict[str, object]) -> None:
        cluster = {"restart_backoff_s": 0.05, **tables.pop("cluster", {})}
        config = {"http": {"port": 0}, "cluster": cluster, **tables}
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), json.dumps(config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def saw(self, text: str, times: int = 1) -> bool:
        return sum(text in line for line in self.lines) >= times

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, self.lines
            time.sleep(0.005)

    def code(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._thread.join(10)
        return code

    def lives(self, name: str) -> list[list[str]]:
        file = self.folder / f"{name}.lives"
        return (
            [line.split(" ", 3) for line in file.read_text().splitlines()] if file.exists() else []
        )

    def pids(self) -> list[int]:
        files = self.folder.glob("*.lives")
        return [int(line.split()[1]) for file in files for line in file.read_text().splitlines()]

    def heard(self, name: str) -> str:
        file = self.folder / f"{name}.heard"
        return file.read_text() if file.exists() else ""


def alive(pid: int) -> bool:
    """A zombie of a dead parent is none of ours to wait for, and is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
