"""Pages between two hosts: network namespaces with cables that are slow, lossy, and pulled."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tcp_kit import TIMEOUT_S, OwnerProcess, owner_process

from netns_kit import Link, Net, joined_hosts

PAGES, PAGE_BYTES = 64, 192 << 10
"""12 MiB."""


class Taker:
    """On the right host."""

    def __init__(
        self, net: Net, owner: OwnerProcess, stack_process: "subprocess.Popen[str]"
    ) -> None:
        self.net = net
        self.process = stack_process
        access = owner.access
        told = {"endpoints": access.endpoints, "id": access.key_id.hex(), "key": access.key.hex()}
        self.begin(json.dumps(told))

    def begin(self, line: object) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def pull(self, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        self.begin(timeout_s)
        return self.answer()


@contextmanager
def hosts(*links: Link, streams: int = 2) -> Iterator[Taker]:
    """An owner on the left, a taker on the right."""
    with joined_hosts(*links) as net:
        endpoints = [f"tcp://{address}:0" for address in net.addresses("left")]
        owned = owner_process(
            *endpoints,
            pages=PAGES,
            page_bytes=PAGE_BYTES,
            wrap=lambda command: net.command("left", command),
        )
        script = str(Path(__file__).with_name("tcp_taker.py"))
        numbers = map(str, (PAGES, PAGE_BYTES, streams))
        pipe = subprocess.PIPE
        with owned as owner:
            started = net.start(
                "right", [sys.executable, script, *numbers], stdin=pipe, stdout=pipe, text=True
            )
            with started as process:
                try:
                    yield Taker(net, owner, process)
                finally:
                    process.kill()


def assert_all(told: dict[str, Any]) -> None:
    assert told["good"] == PAGES, told
    assert told["wrong"] == 0


@pytest.fixture(scope="module")
def taker() -> Iterator[Taker]:
    """Two cables, of which one carries ten times as much."""
    with hosts(Link(rate_mbit=800), Link(rate_mbit=80)) as made:
        yield made


def test_the_better_of_two_cables_carries_more(taker: Taker) -> None:
    for _ in range(3):
        told = taker.pull()
        assert_all(told)
    better, worse = (path["bytes"] for path in told["paths"])
    assert better > worse > 0


def test_a_cable_of_two_is_pulled_in_the_middle_and_no_page_is_lost(taker: Taker) -> None:
    taker.begin(TIMEOUT_S)
    taker.net.cut(0)
    assert_all(taker.answer())
    told = taker.pull()
    assert_all(told)
    assert told["paths"][0]["state"] != "closed"
    taker.net.mend(0)
    carried = told["paths"][0]["bytes"]
    while told["paths"][0]["bytes"] == carried:
        told = taker.pull()
        assert_all(told)


def test_all_cables_are_pulled_and_plugged_in_again(taker: Taker) -> None:
    """A pull that has no time to wait misses; the next one goes on as soon as there is a way."""
    assert_all(taker.pull())
    for link in range(2):
        taker.net.cut(link)
    told = taker.pull(1.5)
    assert told["good"] < PAGES
    assert told["wrong"] == 0
    taker.begin(60.0)
    for link in range(2):
        taker.net.mend(link)
    assert_all(taker.answer())


def test_a_long_lossy_cable() -> None:
    with hosts(Link(rate_mbit=1000, delay_ms=1.0, loss=0.001), streams=4) as taker:
        for _ in range(2):
            assert_all(taker.pull(60.0))
