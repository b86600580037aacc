"""NIXL (UCX backend) moving the same pages between two processes of its own.

Runs in NIXL's virtualenv. `nixl_peer.py owner PAGES PAGE_BYTES` registers memory, prints where it
is, and stays until its standard input ends. `nixl_peer.py taker PAGES PAGE_BYTES` reads that line
first, then one pull a line, `[[source, target], …]`, and prints the seconds that it took. As NIXL
advises, page lists are prepared once and a pull names indices; its result is checked afterwards.
"""

import base64
import json
import os
import sys
import time

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

_DEVICE = 0


class Side:
    """Registered memory of one process; page p of the owner is filled with bytes that tell p."""

    def __init__(self, name: str, pages: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.memory = np.ones((pages, page_bytes // 8), np.uint64)
        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        whole = [(self.memory.ctypes.data, self.memory.nbytes, _DEVICE, "")]
        self.registered = self.agent.register_memory(whole, "DRAM")

    def pages_at(self, start: int):
        rows = [
            (start + p * self.page_bytes, self.page_bytes, _DEVICE) for p in range(len(self.memory))
        ]
        return self.agent.get_xfer_descs(rows, "DRAM")


def own(replies, pages: int, page_bytes: int) -> None:
    side = Side("owner", pages, page_bytes)
    side.memory[:] = np.arange(pages, dtype=np.uint64)[:, None]
    metadata = base64.b64encode(side.agent.get_agent_metadata()).decode()
    print(json.dumps({"metadata": metadata, "at": side.memory.ctypes.data}), file=replies)
    sys.stdin.read()


def take(replies, pages: int, page_bytes: int) -> None:
    side = Side("taker", pages, page_bytes)
    agent, peer = side.agent, json.loads(sys.stdin.readline())
    remote = agent.add_remote_agent(base64.b64decode(peer["metadata"]))
    here = agent.prep_xfer_dlist("NIXL_INIT_AGENT", side.pages_at(side.memory.ctypes.data))
    there = agent.prep_xfer_dlist(remote, side.pages_at(peer["at"]))
    for line in sys.stdin:
        sources, targets = map(list, zip(*json.loads(line), strict=True))
        started = time.perf_counter()
        handle = agent.make_prepped_xfer("READ", here, targets, there, sources)
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        seconds = time.perf_counter() - started
        agent.release_xfer_handle(handle)
        if state != "DONE" or (side.memory[targets] != np.array(sources)[:, None]).any():
            raise RuntimeError(f"a transfer ended as {state}, or with other bytes")
        side.memory[targets, 0] = 1 << 40
        print(json.dumps(seconds), file=replies)


if __name__ == "__main__":
    # Libraries print what they like: the replies get a pipe of their own.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    {"owner": own, "taker": take}[sys.argv[1]](replies, *map(int, sys.argv[2:]))
