"""Mooncake's transfer engine (TCP) moving pages between two processes of its own.

Runs in Mooncake's virtualenv, with the commands of `nixl_peer.py`: `owner PAGES PAGE_BYTES` prints
where its memory is, `taker PAGES PAGE_BYTES` reads that line, then one pull a line, `[[source,
target], …]`, and prints the seconds that it took. Both sides' memory is registered before.
"""

import ctypes
import json
import mmap
import os
import socket
import sys
import time

from mooncake.engine import TransferEngine


class Side:
    """Registered memory of one process; page p of the owner is filled with p's low byte."""

    def __init__(self, pages: int, page_bytes: int, host: str) -> None:
        self.page_bytes = page_bytes
        self.memory = mmap.mmap(-1, pages * page_bytes)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.engine = TransferEngine()
        if self.engine.initialize(host, "P2PHANDSHAKE", "tcp", ""):
            raise SystemExit("Mooncake's engine can't be initialised")
        if self.engine.register_memory(self.at, len(self.memory)):
            raise SystemExit("memory can't be registered")
        self.name = f"{host}:{self.engine.get_rpc_port()}"


def address() -> str:
    """This host's: of the first device that is not loopback in a namespace, else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.77.0.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return own if own.startswith("10.77.") else "127.0.0.1"


def own(replies, pages: int, page_bytes: int) -> None:
    side = Side(pages, page_bytes, address())
    for page in range(pages):
        side.memory[page * page_bytes : (page + 1) * page_bytes] = bytes([page % 256]) * page_bytes
    print(json.dumps({"name": side.name, "at": side.at}), file=replies)
    sys.stdin.read()


def take(replies, pages: int, page_bytes: int) -> None:
    side, peer = Side(pages, page_bytes, address()), json.loads(sys.stdin.readline())
    for line in sys.stdin:
        pairs = json.loads(line)
        here = [side.at + target * page_bytes for _, target in pairs]
        there = [peer["at"] + source * page_bytes for source, _ in pairs]
        sizes = [page_bytes] * len(pairs)
        started = time.perf_counter()
        code = side.engine.batch_transfer_sync_read(peer["name"], here, there, sizes)
        seconds = time.perf_counter() - started
        first = [side.memory[target * page_bytes] for _, target in pairs]
        if code or first != [source % 256 for source, _ in pairs]:
            raise RuntimeError(f"a transfer ended with {code}, or with other bytes")
        for _, target in pairs:
            side.memory[target * page_bytes] = (target + 1) % 256
        print(json.dumps(seconds), file=replies)


if __name__ == "__main__":
    # Libraries print what they like: the replies get a pipe of their own.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    {"owner": own, "taker": take}[sys.argv[1]](replies, *map(int, sys.argv[2:]))
