"""Passing a descriptor: exactly one, in time, nothing leaked, nothing read beyond it."""

import array
import asyncio
import gc
import os
import socket
import time

import pytest
from region_kit import descriptors

from antiphon.errors import PeerError
from antiphon.store.transfer import receive_fd, receive_fd_on_loop, send_fd


@pytest.fixture
def pair():
    gc.collect()
    before = descriptors()
    left, right = socket.socketpair()
    with left, right:
        yield left, right
    assert descriptors() == before


@pytest.mark.parametrize("blocking", [True, False])
def test_it_arrives_as_the_same_file(pair, blocking: bool) -> None:
    left, right = pair
    left.setblocking(blocking)
    right.setblocking(blocking)
    sent = os.memfd_create("it")
    send_fd(left, sent, 1)
    left.sendall(b"what follows")
    got = receive_fd(right, 1)
    assert os.path.sameopenfile(sent, got)
    assert not os.get_inheritable(got)
    assert right.recv(100) == b"what follows"
    os.close(sent)
    os.close(got)


def rights(*fds: int):
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


@pytest.mark.parametrize(
    ("data", "count"), [(b"F", 0), (b"F", 2), (b"F", 3), (b"x", 1), (b"x", 0), (b"FF", 0)]
)
def test_anything_else_is_refused_and_closed(pair, data: bytes, count: int) -> None:
    left, right = pair
    sent = os.memfd_create("it")
    left.sendmsg([data], rights(*[sent] * count) if count else [])
    with pytest.raises(PeerError, match="sent b'"):
        receive_fd(right, 1)
    os.close(sent)


def test_silence_and_an_end(pair) -> None:
    left, right = pair
    with pytest.raises(PeerError, match="silent"):
        receive_fd(right, 0.01)
    left.shutdown(socket.SHUT_WR)
    with pytest.raises(PeerError, match="closed the connection"):
        receive_fd(right, 1)


def test_a_peer_that_is_gone_or_does_not_read(pair) -> None:
    left, right = pair
    left.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            left.send(bytes(1 << 16))
    with pytest.raises(PeerError, match="silent"):
        send_fd(left, 0, 0.01)
    right.close()
    with pytest.raises(PeerError, match="did not take"):
        send_fd(left, 0, 1)


async def test_the_event_loop_goes_on_meanwhile(pair) -> None:
    left, right = pair
    right.setblocking(False)
    receiving = asyncio.create_task(receive_fd_on_loop(right, 10))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not receiving.done()
    send_fd(left, 0, 1)
    os.close(await receiving)


async def test_it_gives_up_in_time_on_the_event_loop(pair) -> None:
    _, right = pair
    right.setblocking(False)
    started = time.monotonic()
    with pytest.raises(PeerError, match="within"):
        await receive_fd_on_loop(right, 0.02)
    assert time.monotonic() - started >= 0.02


async def test_both_ends_as_streams_as_the_module_says(pair) -> None:
    left, right = pair
    left.setblocking(False)
    right.setblocking(False)
    _, sender = await asyncio.open_unix_connection(sock=left)
    sent = os.memfd_create("it")
    with socket.socket(fileno=os.dup(sender.get_extra_info("socket").fileno())) as bare:
        send_fd(bare, sent, 1)
    sender.write(b"after it\n")
    got = await receive_fd_on_loop(right, 1)
    reader, receiver = await asyncio.open_unix_connection(sock=right)
    assert await reader.readline() == b"after it\n"
    assert os.path.sameopenfile(sent, got)
    for fd in (sent, got):
        os.close(fd)
    for writer in (sender, receiver):
        writer.close()
        await writer.wait_closed()
