"""Hosts for tests: network namespaces that are joined by one or several links.

    with joined_hosts(Link(), Link(rate_mbit=1000)) as net:
        process = net.start("left", [sys.executable, "server.py", net.addresses("left")[0]])
        net.cut(1)

Each link is a veth pair (`tc tbf` bounds its rate) or, with a delay or losses on a kernel without
netem, a pair of TUN devices with `antiphon.testing.slow_link` between them. Nothing of it is seen
outside, and nothing is left of it. `unmade` says why this machine makes none; tests skip then.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

Side = Literal["left", "right"]
_SIDES: tuple[Side, Side] = ("left", "right")
_numbers = itertools.count()


@dataclass(frozen=True)
class Link:
    """What a link is like. `rate_mbit`, `delay_ms` (one way), `loss` (share) 0: no limit, none."""

    rate_mbit: float = 0.0
    delay_ms: float = 0.0
    loss: float = 0.0

    @property
    def slow(self) -> bool:
        return self.delay_ms > 0 or self.loss > 0


@dataclass
class Net:
    """Two hosts. Link i has addresses 10.77.i.1 (left) and 10.77.i.2 (right)."""

    names: dict[Side, str]
    devices: list[str] = field(default_factory=list)
    carriers: dict[int, "subprocess.Popen[str]"] = field(default_factory=dict)
    """`slow_link` of each link that has one."""

    def addresses(self, side: Side) -> list[str]:
        return [f"10.77.{i}.{_SIDES.index(side) + 1}" for i in range(len(self.devices))]

    def command(self, side: Side, command: Sequence[str]) -> list[str]:
        """The command, to be run on that host."""
        return ["ip", "netns", "exec", self.names[side], *command]

    def start(self, side: Side, command: Sequence[str], **options: Any) -> subprocess.Popen:
        return subprocess.Popen(self.command(side, command), **options)

    def cut(self, link: int) -> None:
        """Pull the cable: what is sent from the left is lost, and nobody there is told."""
        self._set(link, "down")

    def mend(self, link: int) -> None:
        self._set(link, "up")

    def lost(self, link: int) -> int:
        """Packets that a slow link has lost so far, in both directions."""
        if link in self.carriers:
            carrier = self.carriers[link]
            assert carrier.stdin is not None
            assert carrier.stdout is not None
            print(file=carrier.stdin, flush=True)
            return int(carrier.stdout.readline().split()[1])
        show = f"tc -s -j qdisc show dev {self.devices[link]}".split()
        told = (_run(*self.command(side, show)) for side in _SIDES)
        return sum(one["drops"] for text in told for one in json.loads(text))

    def limit(self, link: int, rate_mbit: float) -> None:
        """Another rate for a link that has nothing else: no delay, no losses."""
        for side in _SIDES:
            _shape(self.names[side], self.devices[link], _bounded(rate_mbit))

    def _set(self, link: int, state: str) -> None:
        _ip("-n", self.names["right"], "link", "set", self.devices[link], state)


@contextmanager
def joined_hosts(*links: Link) -> Iterator[Net]:
    """Two hosts with these links between them; skips the test where they can't be made."""
    if (why := unmade()) is not None:
        pytest.skip(why)
    number = next(_numbers)
    net = Net({side: f"antiphon-{os.getpid()}-{number}-{side}" for side in _SIDES})
    with ExitStack() as stack:
        for name in net.names.values():
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for i, link in enumerate(links or (Link(),)):
            slow = link.slow and not _has_netem()
            net.devices.append(_tun(stack, net, i, link) if slow else _veth(net, i, link))
            for side in _SIDES:
                here = ("-n", net.names[side])
                address = net.addresses(side)[i]
                peer = net.addresses("left" if side == "right" else "right")[i]
                _ip(*here, "addr", "add", address, "peer", f"{peer}/32", "dev", net.devices[i])
                _ip(*here, "link", "set", net.devices[i], "up")
        yield net


@cache
def unmade() -> str | None:
    """Why no hosts can be made here; None: they can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc (Debian: iproute2) are not installed"
    name = f"antiphon-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces can't be made here: {made.stderr.strip()}"
    try:
        command = f"ip -n {name} link add try0 type veth peer name try1".split()
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"veth can't be made here: {tried.stderr.strip()}" if tried.returncode else None
    finally:
        _ip("netns", "del", name)


@cache
def _has_netem() -> bool:
    """Whether this kernel can delay and lose packets by itself."""
    name = f"antiphon-{os.getpid()}-netem"
    _ip("netns", "add", name)
    try:
        command = f"ip netns exec {name} tc qdisc add dev lo root netem delay 1ms".split()
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    finally:
        _ip("netns", "del", name)


def _veth(net: Net, number: int, link: Link) -> str:
    device = f"path{number}"
    left, right = (net.names[side] for side in _SIDES)
    _ip(
        "link", "add", device, "netns", left, "type", "veth", "peer", "name", device, "netns", right
    )
    for name in (left, right) if link.rate_mbit or link.slow else ():
        _shape(name, device, _netem(link) if link.slow else _bounded(link.rate_mbit))
    return device


def _shape(name: str, device: str, shape: str) -> None:
    _run("ip", "netns", "exec", name, *f"tc qdisc replace dev {device} root {shape}".split())


def _bounded(rate_mbit: float) -> str:
    """Bursts of 64 KiB, or of a quarter of a millisecond: timers are no finer."""
    burst = max(64 << 10, int(rate_mbit * 1e6 / 8 * 0.25e-3))
    return f"tbf rate {rate_mbit}mbit burst {burst} latency 50ms"


def _netem(link: Link) -> str:
    rate = f" rate {link.rate_mbit}mbit" if link.rate_mbit else ""
    return f"netem delay {link.delay_ms}ms loss {100 * link.loss}%{rate} limit 10000"


def _tun(stack: ExitStack, net: Net, number: int, link: Link) -> str:
    if not Path("/dev/net/tun").exists():
        pytest.skip("this kernel has neither netem nor /dev/net/tun")
    rate, device = str(link.rate_mbit * 1e6 or 1e10), f"slow{number}"
    process = stack.enter_context(
        subprocess.Popen(
            [
                *(sys.executable, "-m", "antiphon.testing.slow_link", *net.names.values()),
                *("--rate-bits", rate, "--delay-ms", str(link.delay_ms), "--loss", str(link.loss)),
                *("--seed", str(number), "--device", device),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stack.callback(process.kill)
    net.carriers[number] = process
    assert process.stdout.readline() == "ready\n"
    for name in net.names.values():
        _ip("-n", name, "link", "set", device, "mtu", "9000")
    return device


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
