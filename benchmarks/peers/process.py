"""The benchmark's side of a competitor: a fresh process, stopped unless it is its turn."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contestant import Setup

LONGEST_S = 900.0


class Failed(Exception):
    """A competitor ended, or took too long; the message is the last line that it printed."""


@dataclass(frozen=True)
class Pass:
    """One measured pass: seconds by the clock, and CPU seconds of the process."""

    seconds: float
    cpu_s: float


class Child:
    """A process on given cores. `started` is the moment before it was made."""

    def __init__(
        self, command: Sequence[str], cores: Sequence[int], env: Mapping[str, str], talks: bool
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (`close` closes it)
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else self._errors,
            stderr=self._errors,
            env=os.environ | env,
            text=True,
            bufsize=1,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    @property
    def resident_bytes(self) -> int:
        """Memory of the process and of all that it has started (Linux), mapped files included.

        What several share counts once. Raises `Failed`.
        """
        return self._family_bytes()

    def _family_bytes(self, mapping: str | None = None) -> int:
        """`mapping`: only what is mapped under that name."""
        try:
            return sum(_proportional_bytes(pid, mapping) for pid in _family(self.process.pid))
        except OSError:
            raise self.failed() from None

    def failed(self) -> Failed:
        """What to raise when it has not done what it should."""
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return Failed(lines[-1] if lines else "it ended without a message")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                stream.close()


def _family(pid: int) -> list[int]:
    """The process, its children, theirs, and so on."""
    lists = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(one for children in lists for child in children for one in _family(int(child)))]


def _proportional_bytes(pid: int, mapping: str | None) -> int:
    """A page that n processes have mapped counts one n-th for each (`Pss` of smaps).

    `mapping`: only what is mapped under that name. None: all.
    """
    total, counts = 0, mapping is None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024 if counts else 0
        elif mapping is not None and "-" in line.split(maxsplit=1)[0]:
            counts = mapping in line
    return total


class Competitor(Child):
    """A script of this folder, which `contestant.serve` runs."""

    def __init__(
        self, command: Sequence[str], setup: Setup, cores: Sequence[int], env: Mapping[str, str]
    ) -> None:
        super().__init__([*command, json.dumps(asdict(setup))], cores, env, talks=True)

    def ask(self, command: str) -> Pass:
        """Let it run one command, then stop it. Raises `Failed`."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.send_signal(signal.SIGCONT)
        try:
            process.stdin.write(command + "\n")
        except BrokenPipeError:
            raise self.failed() from None
        ready, _, _ = select.select([process.stdout], [], [], LONGEST_S)
        line = process.stdout.readline() if ready else ""
        if not line:
            raise self.failed()
        process.send_signal(signal.SIGSTOP)
        return Pass(**json.loads(line))
