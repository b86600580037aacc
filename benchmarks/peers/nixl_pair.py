"""NIXL's two processes as the benchmark drives them."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from environment import NIXL, python_of

Pairs = list[tuple[int, int]]
"""(source, target) of each page."""


class NixlPair:
    """NIXL's owner and taker. Stopped unless it is their turn: their threads poll all the time."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        cores: tuple[int, int],
        *,
        pages: int,
        page_bytes: int,
    ) -> None:
        """Both processes, until `stack` ends: the taker on the first of `cores`."""

        def start(role: str, core: int) -> "subprocess.Popen[str]":
            process = subprocess.Popen(
                [
                    str(python_of(NIXL, folder)),
                    str(Path(__file__).parent / NIXL.script),
                    role,
                    str(pages),
                    str(page_bytes),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        self._owner, self._taker = start("owner", cores[1]), start("taker", cores[0])
        self._write(self._read(self._owner))
        self.turn([])

    def turn(self, turn: list[Pairs]) -> list[float]:
        """Seconds of each pull; one before them, which is not counted, wakes all threads up."""
        both = (self._owner, self._taker)
        for process in both:
            process.send_signal(signal.SIGCONT)
        seconds = [self._seconds(pairs) for pairs in ([(0, 0)], *turn)]
        for process in both:
            process.send_signal(signal.SIGSTOP)
        return seconds[1:]

    def _seconds(self, pairs: Pairs) -> float:
        self._write(json.dumps(pairs) + "\n")
        return float(self._read(self._taker))

    def _write(self, line: str) -> None:
        assert self._taker.stdin is not None
        self._taker.stdin.write(line)

    def _read(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("NIXL's process ended: run nixl_peer.py by hand to see why")
        return line
