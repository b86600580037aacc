"""How long a control message takes on a wire that is full of KV: beside our pulls, beside iperf3.

    .venv/bin/python benchmarks/control_beside_kv.py            # writes the results
    .venv/bin/python benchmarks/control_beside_kv.py --quick    # shorter, writes nothing

Two network namespaces are joined by a cable of 1 Gbit/s whose queue holds 50 ms (`tc tbf`). A
message of 200 bytes goes to the other host and back every 10 ms, on a TCP connection of its own:
first alone, then while one side pulls KV from the other all the time, then while iperf3 sends as
many streams. Needs root, ip, tc and iperf3.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from support.result import write
from transfer_tcp import IPERF_S, PAGE, Iperf, Network, Ours

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
from netns_kit import Link, joined_hosts  # noqa: E402

RATE_MBIT = 1000.0
MESSAGE_BYTES = 200
EVERY_S = 0.01
STREAMS = 4
PULL_BYTES = 64 << 20
PORT = 7411


def echo(address: str) -> None:
    """Send back what comes on one connection."""
    with socket.create_server((address, PORT)) as listener:
        print("listening", flush=True)
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def ping(address: str) -> None:
    """For each number of messages that comes in a line: their times in seconds, in a line."""
    with socket.create_connection((address, PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in sys.stdin:
            times = []
            for _ in range(int(line)):
                began = time.perf_counter()
                connection.sendall(bytes(MESSAGE_BYTES))
                left = MESSAGE_BYTES
                while left:
                    left -= len(connection.recv(left))
                times.append(time.perf_counter() - began)
                time.sleep(max(0.0, EVERY_S - times[-1]))
            print(*times, flush=True)


class Pings:
    """Both ends of the control connection."""

    def __init__(self, stack: ExitStack, network: Network) -> None:
        script = [sys.executable, __file__]
        echoing = subprocess.Popen(
            [*network.owner, *script, "--echo", network.address], stdout=subprocess.PIPE, text=True
        )
        stack.callback(echoing.wait)
        stack.callback(echoing.kill)
        assert echoing.stdout is not None
        echoing.stdout.readline()
        pipe = subprocess.PIPE
        self._pinging = subprocess.Popen(
            [*network.taker, *script, "--ping", network.address], stdin=pipe, stdout=pipe, text=True
        )
        stack.callback(self._pinging.wait)
        stack.callback(self._pinging.kill)

    def times(self, count: int) -> dict[str, float]:
        """Milliseconds: the median, the 99th of a hundred, the longest."""
        assert self._pinging.stdin is not None
        assert self._pinging.stdout is not None
        print(count, file=self._pinging.stdin, flush=True)
        times = sorted(1e3 * float(word) for word in self._pinging.stdout.readline().split())
        at99 = times[min(len(times) - 1, len(times) * 99 // 100)]
        named = {"median": statistics.median(times), "p99": at99, "longest": times[-1]}
        return {name: round(value, 3) for name, value in named.items()}


def beside_pulls(pings: Pings, pair: Ours, count: int) -> dict[str, float]:
    """While KV is pulled without a pause; with the rate that it has."""
    over, moved = threading.Event(), [0]
    pair.seconds(STREAMS, PULL_BYTES // PAGE, 1)
    began = time.perf_counter()

    def pulling() -> None:
        while not over.is_set():
            pair.seconds(STREAMS, PULL_BYTES // PAGE, 1)
            moved[0] += PULL_BYTES

    work = threading.Thread(target=pulling)
    work.start()
    times = pings.times(count)
    over.set()
    work.join()
    return {**times, "gb_per_s": round(moved[0] / (time.perf_counter() - began) / 1e9, 4)}


def beside_iperf(pings: Pings, iperf: Iperf, count: int) -> dict[str, float]:
    """While iperf3 sends."""
    rates: list[float] = []
    over = threading.Event()

    def sending() -> None:
        while not over.is_set():
            rates.append(iperf.rate(STREAMS))

    work = threading.Thread(target=sending)
    work.start()
    time.sleep(IPERF_S / 4)  # its start is not what is measured
    times = pings.times(count)
    over.set()
    work.join()
    return {**times, "gb_per_s": round(statistics.median(rates), 4)}


def measure(quick: bool) -> None:
    if os.geteuid() != 0:
        raise SystemExit("network namespaces need root")
    count = 100 if quick else 1500
    with ExitStack() as stack:
        net = stack.enter_context(joined_hosts(Link(rate_mbit=RATE_MBIT)))
        network = Network(
            "1 Gbit/s",
            net.addresses("left")[0],
            owner=net.command("left", []),
            taker=net.command("right", []),
        )
        pings = Pings(stack, network)
        pair = Ours(stack, network, PULL_BYTES // PAGE, sealed=False)
        iperf = Iperf(stack, network)
        found = {
            "alone": pings.times(count),
            "beside_pulls": beside_pulls(pings, pair, count),
            "beside_iperf3": beside_iperf(pings, iperf, count),
        }
    for name, times in found.items():
        print(f"{name:14} {times}", file=sys.stderr)
    if not quick:
        print(write("control_beside_kv", {"unit": "ms", "streams": STREAMS, **found}))


def main() -> None:
    """The measurement, or one end of the control connection."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--echo", help=argparse.SUPPRESS)
    parser.add_argument("--ping", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        echo(options.echo)
    elif options.ping:
        ping(options.ping)
    else:
        measure(options.quick)


if __name__ == "__main__":
    main()
