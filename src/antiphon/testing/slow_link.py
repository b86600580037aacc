"""A link with a rate, a delay and losses between two network namespaces, where netem is missing.

    python -m antiphon.testing.slow_link LEFT RIGHT --rate-bits 1e9 --delay-ms 1 --loss 0.001

Has a TUN device (`slow0`, or what `--device` says) in either namespace and carries packets from one
to the other. Prints "ready" when both are there; addresses are the caller's business. For each line
of its standard input it says how many packets it has carried and lost; it ends with that.
On a kernel that has netem a veth pair with `tc qdisc … netem` is the better link.
"""

import argparse
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.types import Seconds

DEVICE = "slow0"
MOST_WAITING_BYTES = 4 << 20
"""In one direction; what comes then is lost, as in a switch."""

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_MOST_PACKET_BYTES = 65_536
_PACKETS_A_TURN = 64


@dataclass(slots=True)
class Direction:
    """What one direction does with packets: pure, time and chance are arguments. Mutable."""

    bytes_per_s: float
    delay_s: Seconds
    loss: float
    lost: int = 0
    """Packets, by chance or because the queue was full."""
    carried: int = 0
    _free_at: Seconds = 0.0
    _waiting: deque[tuple[Seconds, bytes]] = field(default_factory=deque)
    _waiting_bytes: int = 0

    def sent(self, packet: bytes, now: Seconds, draw: float) -> None:
        """A packet came in; `draw` in [0, 1) says whether it is lost. Mutates."""
        if draw < self.loss or self._waiting_bytes + len(packet) > MOST_WAITING_BYTES:
            self.lost += 1
            return
        self._free_at = max(self._free_at, now) + len(packet) / self.bytes_per_s
        self._waiting.append((self._free_at + self.delay_s, packet))
        self._waiting_bytes += len(packet)

    def due(self, now: Seconds) -> list[bytes]:
        """Packets that have arrived, in order. Mutates."""
        arrived: list[bytes] = []
        while self._waiting and self._waiting[0][0] <= now:
            arrived.append(self._waiting.popleft()[1])
            self._waiting_bytes -= len(arrived[-1])
        self.carried += len(arrived)
        return arrived

    def next_at(self) -> Seconds | None:
        """When the next packet arrives."""
        return self._waiting[0][0] if self._waiting else None


def enter(namespace: str) -> None:
    """Have this thread in a namespace of `ip netns`."""
    with Path("/run/netns", namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"namespace {namespace}: {os.strerror(number)}")


def device_in(namespace: str, name: str = DEVICE) -> int:
    """A new TUN device's descriptor; it lives as long as that."""
    enter(namespace)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    wanted = struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
    fcntl.ioctl(fd, _TUNSETIFF, wanted)
    return fd


def carry(ends: tuple[int, int], ways: tuple[Direction, Direction], chance: random.Random) -> None:
    """Until standard input ends: what comes at one end goes out at the other."""
    while True:
        times = [at for way in ways if (at := way.next_at()) is not None]
        wait_s = max(0.0, min(times) - time.monotonic()) if times else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], wait_s)
        if sys.stdin in ready:
            if not sys.stdin.readline():
                return
            _say(f"{sum(way.carried for way in ways)} {sum(way.lost for way in ways)}")
        for end, way in zip(ends, ways, strict=True):
            if end in ready:
                _read(end, way, chance)
        now = time.monotonic()
        for end, way in zip(reversed(ends), ways, strict=True):
            for packet in way.due(now):
                _write(end, packet)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - whoever started it waits for this


def _read(end: int, way: Direction, chance: random.Random) -> None:
    now = time.monotonic()
    for _ in range(_PACKETS_A_TURN):
        try:
            packet = os.read(end, _MOST_PACKET_BYTES)
        except OSError:  # nothing there, or the device is down
            return
        way.sent(packet, now, chance.random())


def _write(end: int, packet: bytes) -> None:
    try:
        os.write(end, packet)
    except OSError:  # the device is down: the packet is lost
        return


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("--rate-bits", type=float, default=1e9, help="bits a second")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="one way")
    parser.add_argument("--loss", type=float, default=0.0, help="share of packets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=DEVICE, help="its name in both namespaces")
    given = parser.parse_args()
    ends = device_in(given.left, given.device), device_in(given.right, given.device)
    there, back = (
        Direction(given.rate_bits / 8, given.delay_ms / 1000, given.loss) for _ in range(2)
    )
    _say("ready")
    carry(ends, (there, back), random.Random(given.seed))


if __name__ == "__main__":
    main()
