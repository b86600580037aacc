"""The store peers as the benchmark drives them: their servers, and one process that uses them."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from ctypes.util import find_library
from pathlib import Path

from environment import MOONCAKE, REDIS, Peer, python_of

HERE = Path(__file__).parent
START_S = 30.0
ROOM = 2
"""What a peer may keep, as a multiple of all values: old ones are deleted after a put."""


class StorePeer:
    """One peer until `stack` ends, on two cores: servers on the second, their user on the first."""

    def __init__(
        self,
        stack: ExitStack,
        peer: Peer,
        folder: Path,
        cores: tuple[int, int],
        values: int,
        size: int,
    ) -> None:
        """Raises `SystemExit` with the end of its log if it does not start."""
        self._stack, self._peer, self._cores = stack, peer, cores
        self._python = python_of(peer, folder)
        folder_of_log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-")))
        self._log = stack.enter_context((folder_of_log / "peer.log").open("w+"))
        port = free_port()
        {REDIS.name: self._redis, MOONCAKE.name: self._mooncake}[peer.name](port, values * size)
        script = ["use"] if peer is MOONCAKE else []
        command = [*self._command(), *script, str(port), str(values), str(size)]
        self._user = self._start(command, cores[0], answers=True)
        self._read()

    def turn(self, what: str, groups: Sequence[Sequence[int]]) -> list[float]:
        """Seconds of each call: put, get or exists of a group of values."""
        assert self._user.stdin is not None
        self._user.stdin.write(json.dumps([what, groups]) + "\n")
        return self._read()

    def _redis(self, port: int, kept_bytes: int) -> None:
        server = redis_server()
        assert server is not None
        options = f"--port {port} --bind 127.0.0.1 --appendonly no"
        limit = f"--maxmemory {ROOM * kept_bytes + 2**28}"
        self._start([server, "--save", "", *options.split(), *limit.split()], self._cores[1])
        self._until(lambda: can_connect(port))

    def _mooncake(self, port: int, kept_bytes: int) -> None:
        master = self._python.parent / "mooncake_master"
        options = [f"--rpc_port={port}", f"--metrics_port={free_port()}"]
        self._start([str(master), *options], self._cores[1])
        self._until(lambda: can_connect(port))
        keeper = [*self._command(), "keep", str(port), str(ROOM * kept_bytes + 2**28)]
        process = self._start(keeper, self._cores[1], answers=True)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise self._ended()

    def _command(self) -> list[str]:
        return [str(self._python), str(HERE / self._peer.script)]

    def _start(
        self, command: list[str], core: int, *, answers: bool = False
    ) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else self._log,
            stderr=self._log,
            text=True,
            bufsize=1,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _read(self) -> list[float]:
        assert self._user.stdout is not None
        line = self._user.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _until(self, good: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not good():
            if time.monotonic() > deadline:
                raise self._ended()
            time.sleep(0.05)

    def _ended(self) -> SystemExit:
        tail = Path(self._log.name).read_text(errors="replace")[-2000:]
        return SystemExit(f"{self._peer.name} ended, or did not start; its log ends with:\n{tail}")


def absent(peer: Peer, folder: Path) -> str | None:
    """Why this peer can't run; None: it can."""
    if not python_of(peer, folder).exists():
        return "run this with --prepare first"
    if peer is REDIS and redis_server() is None:
        return "there is no server: apt-get install redis-server"
    if peer is MOONCAKE and find_library("ibverbs") is None:
        return "a library that it is linked with is absent: apt-get install libibverbs1"
    return None


def redis_server() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def can_connect(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
