"""A cluster on two hosts: prefill on one, decode on the other, over cables that are slow, lose
packets and are pulled."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from completions import add_line, ask, lines_of
from e2e_process import Served, joined
from hosts_kit import CABLE, HostWorker, TwoHosts, health, of

from command_here import run_here
from netns_kit import joined_hosts

pytestmark = pytest.mark.timeout(300)

TALE: dict[str, Any] = {
    "model": "tiny",
    "prompt": "it was so " * 40,
    "max_tokens": 200,
    "ignore_eos": True,
    "seed": 9,
}
LONG = {**TALE, "max_tokens": 2500, "prompt": "and then " * 20}
AWAY_S = 5.0
LOST = 3


@pytest.fixture(scope="module")
def hosts(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    with joined_hosts(CABLE, CABLE) as net:
        both = TwoHosts(net, tmp_path_factory.mktemp("hosts"), tiny)
        try:
            both.start_worker()
            both.until_decodes()
            yield both
            assert both.server.stop() == 0, "".join(both.server.output)
        finally:
            both.close()


@pytest.fixture(scope="module")
def expected(
    cluster: Callable[[str], Served],
) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """What a cluster on one host answers."""
    alone = cluster("1P1D")
    return lambda body: ask(alone, **body)


class Streamed:
    """A call whose answer comes in a stream, on a thread of its own."""

    def __init__(self, hosts: TwoHosts, body: dict[str, Any]) -> None:
        self._hosts, self._body = hosts, body
        self.choices: dict[int, dict[str, Any]] = {}
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._hosts.inside():
                self._listen()
        except (AssertionError, httpx.HTTPError) as error:
            self.problem = error

    def _listen(self) -> None:
        url = f"{self._hosts.server.url}/v1/completions"
        with httpx.stream("POST", url, json={**self._body, "stream": True}, timeout=120) as answer:
            assert answer.status_code == 200, answer.read()
            for line in lines_of(answer):
                add_line(self.choices, line)

    def until_text(self, letters: int) -> None:
        while len(self.choices.get(0, {}).get("text", "")) < letters:
            assert self._thread.is_alive(), self.problem
            time.sleep(0.001)

    def ended(self) -> list[dict[str, Any]]:
        self._thread.join(120)
        assert not self._thread.is_alive()
        assert self.problem is None, self.problem
        return list(self.choices.values())


def texts(choices: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(choice["text"], choice["finish_reason"]) for choice in choices]


def asked(hosts: TwoHosts, body: dict[str, Any]) -> list[dict[str, Any]]:
    with hosts.inside():
        return ask(hosts.server, **body)


def pulls(hosts: TwoHosts, worker: str = "box2.decode-0") -> float:
    with hosts.inside():
        metrics = hosts.server.metrics()
    return metrics("antiphon_pulled_tokens_total", worker=worker)


def test_prefill_on_one_host_and_decode_on_the_other_give_the_same_tokens(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """And the KV comes over the network, though the hosts' clocks are years apart."""
    before = pulls(hosts)
    assert texts(asked(hosts, TALE)) == texts(expected(TALE))
    assert pulls(hosts) - before > 100
    rows = {row["id"]: row for row in hosts.server.status()["workers"]}
    assert [(rows[id]["host"], rows[id]["transport"]) for id in sorted(rows)] == [
        ("box2", "tls"),
        ("box1", "unix"),
    ]


def test_packets_that_are_late_or_lost_change_nothing(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """Three calls at a time, until packets were lost."""
    for address in hosts.net.addresses("right"):
        with hosts.inside(), pytest.raises(ConnectionRefusedError):
            began = time.monotonic()
            socket.create_connection((address, 1))
        assert time.monotonic() - began >= 2e-3 * CABLE.delay_ms
    number = 0
    while sum(hosts.net.lost(link) for link in range(2)) < LOST:
        bodies = [{**TALE, "prompt": f"tale {number + n} " * 40} for n in range(3)]
        streams = [Streamed(hosts, body) for body in bodies]
        for stream, body in zip(streams, bodies, strict=True):
            assert texts(stream.ended()) == texts(expected(body))
        number += len(bodies)


def test_hosts_change_roles(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """What box2 computes is continued at the gateway's host: KV goes the other way."""
    there = {"prefill-0": "decode", "box2.decode-0": "prefill"}
    back = {"box2.decode-0": "decode", "prefill-0": "prefill"}
    flip(hosts, there)
    before = pulls(hosts, "prefill-0")
    other = {**TALE, "prompt": "the other way " * 40}
    assert texts(asked(hosts, other)) == texts(expected(other))
    assert pulls(hosts, "prefill-0") - before > 100
    flip(hosts, back)


def flip(hosts: TwoHosts, roles: dict[str, str]) -> None:
    for worker, role in roles.items():
        done = run_here("role", worker, role, "--url", hosts.server.url)
        assert done.returncode == 0, done.stderr


def test_a_cable_that_is_pulled_loses_no_token_and_all_is_well_afterwards(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    stream = Streamed(hosts, LONG)
    stream.until_text(200)
    assert hosts.server.worker("box2.decode-0")["running"] == 1, "it decodes on the other host"
    for link in (0, 1):
        hosts.net.cut(link)
    pulled_at = time.monotonic()
    hosts.server.until(lambda status: health(status, "box2.decode-0") == "expected")
    time.sleep(max(0.0, pulled_at + AWAY_S - time.monotonic()))
    for link in (0, 1):
        hosts.net.mend(link)
    assert texts(stream.ended()) == texts(expected(LONG))
    hosts.until_decodes()
    before = pulls(hosts)
    other = {**TALE, "prompt": "once more " * 40}
    assert texts(asked(hosts, other)) == texts(expected(other))
    assert pulls(hosts) > before


def test_of_two_paths_one_will_do(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """The one that the control streams are on goes away within an answer, and stays away."""
    body = {**LONG, "prompt": "one of two " * 20}
    stream = Streamed(hosts, body)
    stream.until_text(200)
    hosts.net.cut(0)
    try:
        assert texts(stream.ended()) == texts(expected(body))
        hosts.until_decodes()
        before = pulls(hosts)
        other = {**TALE, "prompt": "on the other path " * 20}
        assert texts(asked(hosts, other)) == texts(expected(other))
        assert pulls(hosts) > before
    finally:
        hosts.net.mend(0)


def test_processes_that_are_killed_come_back_on_both_hosts(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """A worker's own host starts it again; a new gateway is joined by workers of other hosts."""
    before = hosts.until_decodes()
    os.kill(before["pid"], signal.SIGKILL)
    hosts.server.until(
        lambda status: of(status, "box2.decode-0")["pid"] not in (None, before["pid"])
    )
    gateway = hosts.server.status()["gateway_pid"]
    os.kill(gateway, signal.SIGKILL)
    hosts.server.until(lambda status: status["gateway_pid"] != gateway and joined(status))
    assert texts(asked(hosts, TALE)) == texts(expected(TALE))


def test_a_host_that_has_other_keys_hears_why_it_may_not_join(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    made = run_here("cluster", "keys", str(tmp_path / "keys"), "--config", str(hosts.file))
    assert made.returncode == 0, made.stderr
    own, hosts.keys = hosts.keys, tmp_path / "keys"
    try:
        foreign: HostWorker = hosts.start_worker()
    finally:
        hosts.keys = own
    assert foreign.exit_code() == 2
    assert "of this cluster" in "".join(foreign.output)


def test_a_worker_that_is_told_to_end_leaves_when_it_has_nothing_left(
    hosts: TwoHosts, expected: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    body = {**LONG, "prompt": "in the end " * 20}
    stream = Streamed(hosts, body)
    stream.until_text(200)
    worker = hosts.workers[0]
    assert worker.stop() == 0, "".join(worker.output)
    assert texts(stream.ended()) == texts(expected(body))
    hosts.server.until(lambda status: health(status, "box2.decode-0") == "expected")
