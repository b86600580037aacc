"""Two hosts, each with a store beside its workers: what one has computed the other fetches, what an
operator sees of it, and a host whose store dies."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from completions import ask
from hosts_kit import TwoHosts, health, of

from command_here import run_here
from netns_kit import Link, joined_hosts

pytestmark = pytest.mark.timeout(300)

TALE: dict[str, Any] = {
    "model": "tiny",
    "prompt": "It was the best of times, it was the worst of times. " * 30,
    "max_tokens": 24,
    "ignore_eos": True,
    "seed": 9,
}
DECODES = "box2.decode-0"


@pytest.fixture(scope="module")
def hosts(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    with joined_hosts(Link(), Link()) as net:
        both = TwoHosts(net, tmp_path_factory.mktemp("hosts"), tiny, pooled=True)
        try:
            both.start_worker()
            both.until_decodes()
            both.server.until(stores_are_pooled)
            yield both
            assert both.workers[0].stop() == 0, "".join(both.workers[0].output)
            assert both.server.stop() == 0, "".join(both.server.output)
        finally:
            both.close()


def stores_are_pooled(status: dict[str, Any]) -> bool:
    """Each is there, with the other one in its pool, as the gateway sees it."""
    stores = [status["store"], *status["host_stores"]]
    return len(stores) == 2 and all(
        store["health"] == "ready" and [peer["state"] for peer in store["pool"]] == ["here"]
        for store in stores
    )


def asked(hosts: TwoHosts, body: dict[str, Any]) -> str:
    with hosts.inside():
        return ask(hosts.server, **body)[0]["text"]


def counted(hosts: TwoHosts, name: str, **labels: str) -> float:
    with hosts.inside():
        return hosts.server.metrics()(name, **labels)


def test_what_one_host_has_computed_the_other_one_fetches(hosts: TwoHosts) -> None:
    """The router knows that the store of box2 has it, if only through its pool."""
    first = asked(hosts, TALE)
    with hosts.inside():
        hosts.server.until_metrics(
            lambda metrics: (
                metrics("antiphon_host_store_blocks", host="box2")
                + metrics("antiphon_pool_peer_blocks", store="box2.store", peer="box1")
                >= metrics("antiphon_store_blocks", tier="host")
                > 0
            )
        )
    assert run_here("drain", "prefill-0", "--url", hosts.server.url).returncode == 0
    try:
        forget_own_cache(hosts)
        before = counted(hosts, "vllm:external_prefix_cache_hits_total", worker=DECODES)
        again = asked(hosts, TALE)
    finally:
        back = run_here("role", "prefill-0", "prefill", "--url", hosts.server.url)
        assert back.returncode == 0, back.stderr
    assert again == first
    assert counted(hosts, "vllm:external_prefix_cache_hits_total", worker=DECODES) > before


def forget_own_cache(hosts: TwoHosts) -> None:
    """The worker of box2 begins a life with an empty memory."""
    pid = hosts.until_decodes()["pid"]
    os.kill(pid, signal.SIGKILL)
    hosts.server.until(
        lambda status: (
            of(status, DECODES)["pid"] not in (None, pid) and health(status, DECODES) == "joined"
        )
    )


def test_operators_see_links_paths_and_the_pool(hosts: TwoHosts) -> None:
    asked(hosts, {**TALE, "prompt": "seen by all " * 60})
    status = hosts.server.until(lambda status: any(link["paths"] for link in status["links"]))
    [link] = status["links"]
    assert (link["reader"], link["owner"], link["transport"]) == (DECODES, "prefill-0", "tcp")
    assert link["bytes_total"] > 0
    addresses = hosts.net.addresses("left")
    assert [path["address"].rpartition(":")[0] for path in link["paths"]] == addresses
    assert sum(path["bytes_total"] for path in link["paths"]) > 0
    [host_store] = status["host_stores"]
    assert (host_store["id"], host_store["pool"][0]["name"]) == ("box2.store", "box1")
    assert status["store"]["pool"][0]["name"] == "box2"
    shown = run_here("status", "--url", hosts.server.url)
    assert shown.returncode == 0, shown.stderr
    for word in ("KV that workers pulled:", "Pool of stores:", "box2.store", addresses[1]):
        assert word in shown.stdout
    stats = run_here("kv", "stats", "--json", "--url", hosts.server.url)
    assert [host["host"] for host in json.loads(stats.stdout)["hosts"]] == ["box2"]
    owner = {"reader": DECODES, "owner": "prefill-0"}
    assert counted(hosts, "antiphon_path_up", **owner) == len(addresses)
    assert counted(hosts, "antiphon_link_bytes_total", worker=DECODES, transport="tcp") > 0
    assert counted(hosts, "antiphon_pool_peer_up") == 2


def test_each_door_is_called(hosts: TwoHosts) -> None:
    command = ("cluster", "check", str(hosts.file), "--keys", str(hosts.keys), "--dial", "--json")
    with hosts.inside():
        done = run_here(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    called = [one for row in json.loads(done.stdout)["hosts"] for one in row["dialed"]]
    assert [one["what"] for one in called] == ["gateway", "store"] * 2 + ["store"] * 2
    for one in called:
        assert one["round_trip_ms"] > 0
        assert one["gbit_per_s"] > 0
        assert abs(one["clock_ahead_s"]) < 60
    hosts.net.cut(1)
    try:
        with hosts.inside():
            done = run_here(*command)
    finally:
        hosts.net.mend(1)
    assert done.returncode == 1
    silent = [one for row in json.loads(done.stdout)["hosts"] for one in row["dialed"]]
    cut_off = hosts.net.addresses("right")[1]
    assert [one["address"].startswith(cut_off) for one in silent if one["problem"]] == [True]


def test_a_hosts_store_that_dies_is_started_again_and_costs_no_answer(hosts: TwoHosts) -> None:
    first = asked(hosts, TALE)
    parent = hosts.workers[0].process.pid
    pid = next(child for child in descendants(parent) if is_store(child))
    os.kill(pid, signal.SIGKILL)
    assert asked(hosts, TALE) == first
    hosts.server.until(
        lambda status: stores_are_pooled(status) and health(status, DECODES) == "joined"
    )
    assert any(is_store(child) for child in descendants(parent) if child != pid)


def descendants(pid: int) -> list[int]:
    """Of a process: its children, theirs, and so on."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    children = [int(child) for child in text.split()]
    return [*children, *(one for child in children for one in descendants(child))]


def is_store(pid: int) -> bool:
    try:
        return b"store_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
