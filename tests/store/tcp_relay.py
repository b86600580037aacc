"""Something between a taker and an owner that does what networks and strangers do to bytes."""

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from antiphon.types import DataAccess

HANDSHAKE_BYTES = 42 + 64
"""What the owner says in one."""
BIT_BYTES, BIT_S = 64, 0.001


class TcpRelay:
    """Passes connections on to `target`, until it is closed.

    `garble` flips a bit of that byte that comes from the owner, counted over all connections, and
    of all at which it is reached again; `stall`: nothing passes; `trickle`: what comes from the
    owner comes in small bits; `refuse`: connections are closed at once; `let_in`: handshakes pass
    and no page does; `break_in`: handshakes break in the middle; `break_all` closes those there
    are. `passed` counts what came from the owner.
    """

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("tcp://").split(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.garble: int | None = None
        self.stall = False
        self.trickle = False
        self.let_in = False
        self.break_in = False
        self.refuse = False
        self.passed = 0
        self.connections = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def break_all(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.break_all()
        for thread in list(self._threads):
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuse or self._closed:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
            thread = threading.Thread(target=self._carry, args=(near, far), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        heard = 0
        with near, far, selectors.DefaultSelector() as selector, suppress(OSError):
            for end in other:
                selector.register(end, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select(0.01):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if self.stall:
                        continue
                    if not (data := end.recv(1 << 16)):
                        return
                    if end is near:
                        if self.break_in:
                            return
                        far.sendall(data)
                    elif not self.let_in or heard < HANDSHAKE_BYTES:
                        heard += len(data)
                        self._pass_on(near, self._changed(data))
                if self.stall:
                    threading.Event().wait(0.005)

    def _pass_on(self, near: socket.socket, data: bytes) -> None:
        size = BIT_BYTES if self.trickle else len(data)
        for start in range(0, len(data), size):
            near.sendall(data[start : start + size])
            if self.trickle:
                time.sleep(BIT_S)

    def _changed(self, data: bytes) -> bytes:
        start = self.passed
        self.passed += len(data)
        if self.garble is None or not start <= self.garble < self.passed:
            return data
        changed = bytearray(data)
        changed[self.garble - start] ^= 1
        return bytes(changed)


@contextmanager
def relayed(access: DataAccess, paths: int = 1) -> Iterator[list[TcpRelay]]:
    """So many ways to the owner."""
    relays = [TcpRelay(access.endpoints[0]) for _ in range(paths)]
    try:
        yield relays
    finally:
        for relay in relays:
            relay.close()
