"""A cluster on two hosts: network namespaces with a cable between them."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from e2e_process import START_S, WAIT_S, Served, antiphon

from command_here import run_here
from netns_kit import Link, Net, Side

CABLE = Link(rate_mbit=1000, delay_ms=1.0, loss=0.001)
"""An ordinary network: a millisecond each way, and a packet of a thousand is lost."""
CLOCK_AHEAD_S = 100_000_000
"""The worker's host counts from another time than the gateway's."""
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

FILE = """
[model]
name = "{model}"

[http]
port = 0

[kv]
memory_bytes = "8MiB"

[cluster]
heartbeat_s = 0.1
lost_after_s = 1.5
restart_backoff_s = 0.05

[router]
tpot_s = 0.0001

[store]
{store}

[hosts.box1]
gateway = true
addresses = {left}
prefill = 1
{port}

[hosts.box2]
addresses = {right}
decode = 1
{port}

[[links]]
between = ["box1", "box2"]
gbit_per_s = 10
"""


class TwoHosts:
    """`server` is the gateway's host with a prefill worker, `start_worker` the other one's with one
    that decodes. `pooled`: each has a store, of one pool."""

    def __init__(self, net: Net, folder: Path, model: Path, *, pooled: bool = False) -> None:
        self.net = net
        self.file = folder / "cluster.toml"
        self.keys = folder / "keys"
        addresses = {side: net.addresses(side) for side in ("left", "right")}
        text = FILE.format(
            model=model,
            store='memory_bytes = "16MiB"' if pooled else "enabled = false",
            port="store_port = 7420" if pooled else "",
            **{side: _toml(them) for side, them in addresses.items()},
        )
        self.file.write_text(text)
        made = run_here("cluster", "keys", str(self.keys), "--config", str(self.file))
        assert made.returncode == 0, made.stderr
        self.server = Served(
            *("serve", str(self.file), "--keys", str(self.keys / "box1")),
            prefix=net.command("left", []),
        )
        self.workers: list[HostWorker] = []

    def start_worker(self, host: str = "box2", side: Side = "right") -> "HostWorker":
        command = antiphon("worker", str(self.file), "--keys", str(self.keys / host))
        worker = HostWorker([*_ahead(), *self.net.command(side, command)])
        self.workers.append(worker)
        return worker

    def until_decodes(self) -> dict[str, Any]:
        """Wait until the other host's worker is there, which may just have begun to start."""
        self.server.until(lambda status: health(status, "box2.decode-0") == "joined", START_S)
        return self.server.worker("box2.decode-0")

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self.server.process.poll() is None:
            self.server.process.kill()
            self.server.process.wait()

    @contextlib.contextmanager
    def inside(self, side: Side = "left") -> Iterator[None]:
        """Sockets that this thread opens meanwhile are that host's."""
        with _namespace(f"/run/netns/{self.net.names[side]}"):
            yield


class HostWorker:
    """A running `antiphon worker`, and what it has written."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.output: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.output.extend(self.process.stdout)

    def until_said(self, text: str) -> None:
        end = time.monotonic() + START_S
        while text not in "".join(self.output):
            assert self.process.poll() is None, "".join(self.output)
            assert time.monotonic() < end, "".join(self.output)
            time.sleep(0.01)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(WAIT_S)
        self._reader.join(10)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def of(status: dict[str, Any], worker: str) -> dict[str, Any]:
    return next(row for row in status["workers"] if row["id"] == worker)


def health(status: dict[str, Any], worker: str) -> str:
    return of(status, worker)["health"]


def _toml(addresses: list[str]) -> str:
    return "[" + ", ".join(f'"{one}"' for one in addresses) + "]"


@cache
def _ahead() -> tuple[str, ...]:
    """What starts a command whose monotonic clock is far ahead; nothing where that can't be."""
    command = ("unshare", "--time", "--monotonic", str(CLOCK_AHEAD_S))
    look = [*command, sys.executable, "-c", "import time; print(time.monotonic())"]
    with contextlib.suppress(OSError, ValueError):
        done = subprocess.run(look, capture_output=True, text=True, check=False)
        if float(done.stdout) > CLOCK_AHEAD_S:
            return command
    return ()


@contextlib.contextmanager
def _namespace(path: str) -> Iterator[None]:
    before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    there = os.open(path, os.O_RDONLY)
    try:
        _enter(there)
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(there)
        os.close(before)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        pytest.fail(f"setns: {os.strerror(ctypes.get_errno())}")
