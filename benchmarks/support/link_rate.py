"""What a link carries: bytes a second of one TCP connection between two processes, one each side.

python benchmarks/support/link_rate.py send ADDRESS BYTES     print the port, send when called
python benchmarks/support/link_rate.py take ADDRESS PORT      print the bytes a second that came
"""

import socket
import subprocess
import sys
import time
from collections.abc import Sequence

PIECE = 1 << 20
_FIRST = 0.2
"""Of all bytes: not counted, the connection finds its speed."""


def carried(sender: Sequence[str], taker: Sequence[str], address: str, size: int) -> float:
    """Bytes a second from a process started by `sender` to one by `taker` (`ip netns exec …`)."""
    script = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen([*sender, *script, "send", address, str(size)], stdout=pipe) as sending:
        assert sending.stdout is not None
        try:
            port = sending.stdout.readline().decode().strip()
            command = [*taker, *script, "take", address, port]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            return float(done.stdout)
        finally:
            sending.kill()


def _send(address: str, size: int) -> None:
    with socket.create_server((address, 0)) as door:
        print(door.getsockname()[1], flush=True)
        connection, _ = door.accept()
        with connection:
            piece = bytes(PIECE)
            for _ in range(max(2, size // PIECE)):
                connection.sendall(piece)


def _take(address: str, port: int) -> None:
    room = bytearray(PIECE)
    marks: list[tuple[float, int]] = []
    came = 0
    with socket.create_connection((address, port)) as connection:
        while got := connection.recv_into(room):
            came += got
            marks.append((time.perf_counter(), came))
    began, before = next(mark for mark in marks if mark[1] >= _FIRST * came)
    print((came - before) / (marks[-1][0] - began))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        _send(sys.argv[2], int(sys.argv[3]))
    else:
        _take(sys.argv[2], int(sys.argv[3]))
