"""Whom a door for other hosts lets in, and what those can do that it does not."""

import asyncio
import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from link_kit import until
from network_kit import (
    LOOPBACK,
    address_of,
    closed_by_other_side,
    keys_of,
    make_keys,
    open_door,
)

from antiphon.errors import UsageError
from antiphon.live.network import (
    GATEWAY_NAME,
    HostKeys,
    TlsAddress,
    bound,
    dial,
    tls_door,
    tls_name,
)
from antiphon.wire import TO_WORKER, FrameStream, Kind, encode

pytestmark = pytest.mark.timeout(60)
SECRET = encode(Kind.HEARTBEAT, None)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "keys"
    make_keys(folder, "box1", "box2")
    make_keys(folder, "old", days=-1)
    return folder


def new_stream() -> FrameStream:
    return FrameStream(TO_WORKER, clock=time.monotonic)


async def test_a_host_of_the_cluster_is_heard_and_known(keys: Path) -> None:
    async with open_door(keys_of(keys, "box1")) as (_, strangers, port):
        stream = new_stream()
        await dial(stream, address_of(port, keys_of(keys, "box2")), 5.0)
        assert stream.peer_names == ("box1.host.antiphon", GATEWAY_NAME)
        [there] = strangers.streams
        await until(lambda: there.peer_names is not None)
        assert there.peer_names == ("box2.host.antiphon",)
        stream.end("enough")


def client_context(chain: Path | None = None) -> ssl.SSLContext:
    """What an attacker can bring: it checks nothing, and shows `chain` if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if chain is not None:
        context.load_cert_chain(chain / "host.pem", chain / "host.key")
    return context


@pytest.mark.parametrize("who", ["no certificate", "another authority", "expired", "TLS 1.2"])
async def test_who_has_no_keys_of_the_cluster_is_not_heard(
    keys: Path, tmp_path: Path, who: str
) -> None:
    context = client_context()
    match who:
        case "another authority":
            make_keys(tmp_path / "other", "box2")
            context = client_context(tmp_path / "other/box2")
        case "expired":
            context = client_context(keys / "old")
        case "TLS 1.2":
            context = client_context(keys / "box2")
            context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with open_door(keys_of(keys, "box1")) as (door, strangers, port):
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
            writer.write(SECRET)
            assert await closed_by_other_side(reader) == b""
            writer.close()
        await until(lambda: len(strangers.endings) == 1 and not door.handshakes)
        assert not strangers.frames


async def test_somebody_else_at_one_of_two_paths_does_not_keep_it_from_the_other(
    keys: Path, tmp_path: Path
) -> None:
    """An address that another cluster has now is a path that does not work, as long as one does."""
    make_keys(tmp_path / "other", "box1")
    async with (
        open_door(keys_of(tmp_path / "other", "box1")) as (_, others, wrong),
        open_door(keys_of(keys, "box1")) as (_, strangers, port),
    ):
        gateway = address_of(port, keys_of(keys, "box2"))
        both = replace(gateway, paths=((LOOPBACK, wrong), *gateway.paths))
        stream = new_stream()
        await dial(stream, both, 5.0)
        assert stream.peer_names == ("box1.host.antiphon", GATEWAY_NAME)
        assert len(strangers.streams) == 1
        assert not others.frames
        stream.end("enough")
        elsewhere = replace(gateway, paths=((LOOPBACK, wrong),) * 2)
        with pytest.raises(UsageError, match="certificate"):
            await dial(new_stream(), elsewhere, 5.0)


async def test_who_hangs_up_is_logged_with_a_reason(
    keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_door(keys_of(keys, "box1")) as (_, strangers, port):
        socket.create_connection((LOOPBACK, port)).close()
        await until(lambda: len(strangers.endings) == 1)
    [said] = [line for line in caplog.messages if "did not get in" in line]
    assert said.endswith(": the other side hung up")
    assert strangers.endings[0].reason == "no handshake: the other side hung up"


async def test_plain_bytes_are_not_heard(keys: Path) -> None:
    async with open_door(keys_of(keys, "box1")) as (door, strangers, port):
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(SECRET * 100)
        said = await closed_by_other_side(reader)
        writer.close()
        assert SECRET not in said
        await until(lambda: len(strangers.endings) == 1 and not door.handshakes)
        assert not strangers.frames


async def test_a_handshake_that_is_not_made_ends(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who say nothing, or one byte now and then, are sent away; few wait at once, and fewer
    from one address; meanwhile and afterwards a host of the cluster gets in."""
    monkeypatch.setattr(tls_door, "HANDSHAKE_TIMEOUT_S", 1.0)
    async with open_door(keys_of(keys, "box1")) as (door, strangers, port):
        idle = [socket.create_connection((LOOPBACK, port)) for _ in range(100)]
        slow = socket.create_connection((LOOPBACK, port))
        most = 0
        with suppress(OSError):
            while strangers.endings == [] or door.handshakes:
                most = max(most, door.handshakes)
                slow.send(b"\x16")
                await asyncio.sleep(0.05)
        assert 0 < most <= tls_door.MAX_OF_ONE_ADDRESS
        await until(lambda: not door.handshakes)
        assert len(strangers.streams) == len(strangers.endings) < len(idle)
        stream = new_stream()
        await dial(stream, address_of(port, keys_of(keys, "box2")), 5.0)
        assert stream.peer_names is not None
        stream.end("enough")
        for connection in (*idle, slow):
            connection.close()


@pytest.mark.parametrize("name", [GATEWAY_NAME, tls_name("box2")])
async def test_a_host_can_not_pose_as_another(keys: Path, name: str) -> None:
    """box2's keys at the gateway's address, or box1's at a worker's: who connects says no."""
    server = "box2" if name == GATEWAY_NAME else "box1"
    async with open_door(keys_of(keys, server)) as (_, strangers, port):
        stream = new_stream()
        with pytest.raises(UsageError, match="is not"):
            await dial(stream, address_of(port, keys_of(keys, "box1"), name), 5.0)
        assert not strangers.frames


async def test_an_owner_of_another_cluster_is_not_believed(keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "other", "box1")
    async with open_door(keys_of(tmp_path / "other", "box1")) as (_, strangers, port):
        with pytest.raises(UsageError):
            await dial(new_stream(), address_of(port, keys_of(keys, "box2")), 5.0)
        assert not strangers.frames


async def test_the_next_path_is_tried(keys: Path) -> None:
    mine: HostKeys = keys_of(keys, "box2")
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        dead = (LOOPBACK, taken.getsockname()[1])
        async with open_door(keys_of(keys, "box1")) as (_, _, port):
            stream = new_stream()
            both = TlsAddress((dead, (LOOPBACK, port)), GATEWAY_NAME, mine.client())
            await dial(stream, both, 5.0)
            assert stream.peer_names is not None
            stream.end("enough")
        with pytest.raises(OSError, match=str(dead[1])):
            await dial(new_stream(), TlsAddress((dead,), GATEWAY_NAME, mine.client()), 5.0)


def test_all_that_holds_on_the_servers_loop_too(keys: Path, tmp_path: Path) -> None:
    """asyncio's transports and uvloop's are different code."""
    uvloop.run(test_a_host_of_the_cluster_is_heard_and_known(keys))
    uvloop.run(test_plain_bytes_are_not_heard(keys))
    uvloop.run(test_the_next_path_is_tried(keys))
    uvloop.run(test_a_host_can_not_pose_as_another(keys, GATEWAY_NAME))
    for who in ("no certificate", "another authority", "expired", "TLS 1.2"):
        uvloop.run(test_who_has_no_keys_of_the_cluster_is_not_heard(keys, tmp_path, who))
    with pytest.MonkeyPatch.context() as patched:
        uvloop.run(test_a_handshake_that_is_not_made_ends(keys, patched))


def test_an_address_of_another_host_is_named_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not an address of this host.*\[hosts"):
        bound(["192.0.2.1"], 0, "network.port")


def test_who_has_a_port_is_named_with_the_setting() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        told = rf"^some\.key: port {LOOPBACK}:{port} is taken by .*\(pid {os.getpid()}\): stop that"
        with pytest.raises(UsageError, match=told):
            bound([LOOPBACK], port, "some.key")
