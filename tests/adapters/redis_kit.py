"""A Redis of one's own for a test, and servers that only look like one."""

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")
needs_redis = pytest.mark.skipif(
    BINARY is None,
    reason="needs redis-server or valkey-server (apt-get install redis-server)",
)
LONGEST_S = 30.0


class RealRedis:
    """A server on a Unix socket in `folder`, with nothing kept on disk."""

    def __init__(self, folder: Path, *, password: str | None = None) -> None:
        self._password = password
        self._socket = folder / "redis.sock"
        self._command = [
            str(BINARY),
            *("--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no", "--loglevel", "warning"),
            *(("--requirepass", password) if password else ()),
        ]
        self._process: subprocess.Popen | None = None
        try:
            self.start()
        except BaseException:
            self.kill()
            raise

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def client(self) -> Redis:
        return Redis(unix_socket_path=str(self._socket), password=self._password)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + LONGEST_S
        while True:
            try:
                self.client().info()
                return
            except RedisError:
                assert time.monotonic() < until, "the server does not start"
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def answering(folder: Path, answer: bytes, *, dribble: bool = False) -> Iterator[str]:
    """The URL of a server that answers whatever comes with `answer`, or with a byte at a time."""
    path = folder / "false.sock"
    ended = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(1 << 16):
                    for at in range(0, len(answer), 1 if dribble else len(answer) or 1):
                        connection.sendall(answer[at : at + 1] if dribble else answer)
                        if dribble and ended.wait(0.02):
                            return
                    if not answer:
                        return
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield f"unix://{path}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
