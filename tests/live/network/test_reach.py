"""Where a host is reached, by what it is told and by what the router counts with."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from link_kit import KV, worker_info
from network_kit import LOOPBACK, make_keys
from peer_kit import Leases

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.kv_listeners import KvListeners
from antiphon.live.network import (
    GATEWAY_NAME,
    Reach,
    WorkerDoor,
    bound,
    reach_of,
    tls_name,
    worker_door,
)
from antiphon.live.router_times import router_times
from antiphon.live.shared_kv import SharedKv
from antiphon.live.socket_folder import SocketTakenError, data_socket, listen
from antiphon.perf import read_times
from antiphon.store.transfer import OwnedRegion
from antiphon.types import HostPort, NetworkConfig


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", "box1", "box2")
    return tmp_path / "keys"


def reach(keys: Path, host: str, **network) -> Reach:
    config = NetworkConfig(keys=str(keys / host), addresses=(LOOPBACK,), **network)
    found = reach_of(config)
    assert found is not None
    return found


def free_ports(count: int) -> int:
    """The first of so many neighbours that nobody has now."""
    for first in range(20_000, 60_000, 97):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind((LOOPBACK, port))
        except OSError:
            continue
        return first
    pytest.fail("no free ports")


def test_each_worker_has_two_ports_of_its_own(keys: Path) -> None:
    first = free_ports(4)
    here = reach(keys, "box2", join=("10.0.0.1",), worker_port=first)
    doors = [worker_door(here, number) for number in (0, 1)]
    try:
        assert [door.at.port for door in doors] == [first, first + 2]
        assert [door.data for door in doors] == [
            (f"tcp://{LOOPBACK}:{first + 1}",),
            (f"tcp://{LOOPBACK}:{first + 3}",),
        ]
        assert doors[0].at == HostPort(host="box2", addresses=(LOOPBACK,), port=first)
        with pytest.raises(
            UsageError, match=r"network\.worker_port \+ 2 \(.*\): port .* is taken by .*pid"
        ):
            worker_door(here, 1)
    finally:
        for door in doors:
            for listener in door.listeners:
                listener.close()


@asynccontextmanager
async def kv_behind(door: WorkerDoor, folder: Path) -> AsyncIterator[SharedKv]:
    """The KV of a worker whose door that is, not open yet; afterwards the door is shut."""
    region = OwnedRegion(KV)
    kv = SharedKv(
        region,
        KvListeners(),
        worker_info,
        config=build({"store": {"enabled": False}}),
        folder=folder,
        door=door,
    )
    try:
        yield kv
        assert all(listener.fileno() < 0 for listener in door.listeners)
    finally:
        await kv.close()
        region.close()
        for listener in door.listeners:
            listener.close()


@pytest.mark.parametrize("number", [0, 1])
async def test_a_data_port_that_is_taken_is_named_with_what_chooses_it(
    keys: Path, number: int
) -> None:
    first = free_ports(4)
    door = worker_door(reach(keys, "box2", join=("10.0.0.1",), worker_port=first), number)
    above = 2 * number + 1
    told = (
        rf"^network\.worker_port \+ {above} \(worker_port in .*\): "
        rf"port 127\.0\.0\.1:{first + above} is taken by .*pid"
    )
    async with kv_behind(door, keys) as kv:
        with socket.create_server((LOOPBACK, first + above)), pytest.raises(UsageError, match=told):
            async with kv.open(Leases()):
                pytest.fail("it is open")


async def test_a_door_that_can_not_be_opened_to_this_host_is_open_to_no_other(
    keys: Path, folder: Path
) -> None:
    first = free_ports(2)
    door = worker_door(reach(keys, "box2", join=("10.0.0.1",), worker_port=first), 0)
    taken = listen(data_socket(folder, worker_info().id))
    try:
        async with kv_behind(door, folder) as kv:
            with pytest.raises(SocketTakenError):
                async with kv.open(Leases()):
                    pytest.fail("it is open")
            socket.create_server((LOOPBACK, first + 1)).close()  # no data is served either
    finally:
        taken.close()


def test_any_free_port_is_one_on_all_addresses() -> None:
    listeners = bound([LOOPBACK, "127.0.0.2"], 0, "k")
    try:
        assert len({one.getsockname()[1] for one in listeners}) == 1
    finally:
        for one in listeners:
            one.close()


def test_others_are_reached_by_name_and_address(keys: Path) -> None:
    here = reach(keys, "box2", join=("10.0.0.1:7", "[::1]"))
    gateway = here.gateway()
    assert (gateway.name, gateway.paths) == (GATEWAY_NAME, (("10.0.0.1", 7), ("::1", 7400)))
    there = here.at(HostPort(host="box1", addresses=("10.0.0.1", "10.1.0.1"), port=9))
    assert (there.name, there.paths) == (tls_name("box1"), (("10.0.0.1", 9), ("10.1.0.1", 9)))


def test_only_the_gateways_host_is_a_gateway(keys: Path) -> None:
    assert reach(keys, "box1").host == "box1"
    with pytest.raises(UsageError, match="box2 is no gateway's host"):
        reach(keys, "box2")
    assert reach_of(NetworkConfig()) is None


def test_the_router_counts_with_the_link_between_hosts() -> None:
    alone = build({})
    assert router_times(alone, b"") == ""
    network = replace(alone.network, link_bytes_per_s=1.25e8, link_delay_s=0.01)
    times = read_times(router_times(replace(alone, network=network), b""), step_tokens=512)
    assert 1.06 < times.transfers.seconds(125_000_000) < 1.07
    fast = replace(network, link_bytes_per_s=1e12, link_delay_s=0.0)
    same = read_times(router_times(replace(alone, network=fast), b""), step_tokens=512)
    assert same.transfers == read_times("", step_tokens=512).transfers, "no faster than one host"
