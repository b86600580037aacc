"""A stream between two other processes, taken hold of and shut."""

import socket
import subprocess
import sys
from pathlib import Path

from antiphon.drill.control_stream import control_streams, shut
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
