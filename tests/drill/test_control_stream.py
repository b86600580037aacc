"""A stream between two other processes, taken hold of and shut."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.drill.control_stream import (
    are_connected,
    control_streams,
    garble,
    is_over,
    shut,
    tcp_streams,
)
from antiphon.drill.process_fault import Process, process_of

CHILD = """
import socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
other = socket.socket(socket.AF_UNIX)
other.connect(sys.argv[2])
print("connected", flush=True)
print(stream.recv(1), flush=True)
other.recv(1)
"""


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_only_the_stream_to_that_socket_is_shut_and_both_ends_see_it(tmp_path: Path) -> None:
    gateway, other = tmp_path / "gateway.sock", tmp_path / "other.sock"
    with (
        listening(gateway) as here,
        listening(other) as there,
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(gateway), str(other)],
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        near, far = here.accept()[0], there.accept()[0]
        process = process_of(child.pid)
        assert process is not None
        (stream,) = control_streams(process, gateway)
        assert shut(stream)
        assert near.recv(1) == b""
        assert child.stdout.readline() == "b''\n"
        assert not control_streams(Process(process.pid, process.started - 1), gateway)
        far.sendall(b"x")
        child.wait()
        assert not control_streams(process, gateway)
        for one in (stream, near, far):
            one.close()


READER = """
import socket, sys
stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
print(len(stream.recv(1000)), flush=True)
stream.close()
sys.stdin.read(1)
"""
WAITER = "import sys; print('connected', flush=True); sys.stdin.read(1)"


def test_tcp_streams_are_known_by_both_ends_and_garbage_reaches_the_other_side() -> None:
    """Only those of who is named: a process that has no such stream is not taken for one."""
    here = process_of(os.getpid())
    assert here is not None
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        started(READER, str(listener.getsockname()[1])) as reader,
        started(WAITER) as stranger,
    ):
        accepted = listener.accept()[0]
        there, other = process_of(reader.pid), process_of(stranger.pid)
        assert there is not None
        assert other is not None
        assert are_connected(there, here)
        assert not are_connected(other, here)
        assert tcp_streams(there, [other]) == []
        with accepted:
            (mine,) = tcp_streams(here, [there])
            with mine:
                assert not is_over(mine)
                sent = garble(mine)
                assert sent > 0
                assert reader.stdout is not None
                assert int(reader.stdout.readline()) == sent
                assert accepted.recv(1) == b"", "whoever read it has ended the stream"
                assert is_over(mine)


@contextmanager
def started(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A child that has said that it is connected; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        try:
            yield child
        finally:
            child.kill()
