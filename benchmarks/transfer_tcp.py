"""KV pages from one host to another over TCP: pulls beside iperf3, NIXL over UCX, and Mooncake.

    .venv/bin/python benchmarks/transfer_tcp.py --prepare    # once: NIXL and Mooncake
    .venv/bin/python benchmarks/transfer_tcp.py              # prints tables, writes the results
    .venv/bin/python benchmarks/transfer_tcp.py --quick      # few rounds and sizes, writes nothing

An owner's process serves sealed pages, a taker's pulls so many of them: generation, bytes,
checksum, all of the call, Python included. Both run on loopback, then in two network namespaces
that a veth pair joins. Of each network iperf3 (as many streams, the same direction) is measured in
the same round, so are NIXL (UCX_TLS=tcp) and Mooncake's transfer engine (TCP), which verify
nothing, where they are installed. Rates are medians of the rounds; nobody else runs meanwhile.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from support.result import write

from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageClient, PageServer
from antiphon.types import DataAccess, KvShape

HERE = Path(__file__).parent
sys.path += [str(HERE / "peers"), str(HERE.parent / "tests")]
from environment import MOONCAKE, NIXL, Peer, prepare, python_of  # noqa: E402

from netns_kit import Link, joined_hosts, unmade  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 64 * KIB
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB)
STREAMS = (1, 2, 4, 8)
ROUNDS = 7
TURN_BYTES = 64 * MIB
"""Small pulls are repeated up to so many bytes a round, but no more than `MOST_CALLS` times."""
MOST_CALLS = 64
IPERF_S = 2
IPERF_TRIES = 5
"""Its server is busy until it has seen the end of the run before."""
PULL_S = 60.0
LOOPBACK = "127.0.0.1"
PEERS = {"nixl": NIXL, "mooncake": MOONCAKE}
SCRIPTS = {"nixl": "nixl_peer.py", "mooncake": "mooncake_transfer.py"}


@dataclass
class Network:
    """Where owner and taker are: how a command is started there, and the owner's address."""

    name: str
    address: str
    owner: list[str] = field(default_factory=list)
    taker: list[str] = field(default_factory=list)


@contextmanager
def veth() -> Iterator[Network]:
    with joined_hosts(Link()) as net:
        yield Network(
            "veth",
            net.addresses("left")[0],
            owner=net.command("left", []),
            taker=net.command("right", []),
        )


class EndedError(Exception):
    """A child is gone before it has answered."""


class Lines:
    """A child that answers lines of JSON with lines of JSON."""

    def __init__(self, stack: ExitStack, command: Sequence[str], **options: Any) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, **options)
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def say(self, message: object) -> None:
        assert self._process.stdin is not None
        print(json.dumps(message), file=self._process.stdin, flush=True)

    def hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EndedError(f"{self._process.args} ended")
        return json.loads(line)

    def ask(self, message: object) -> Any:
        self.say(message)
        return self.hear()


# ── our two processes ────────────────────────────────────────────────────────────────────────────


def shape(pages: int) -> KvShape:
    return KvShape(
        layout="benchmark", page_tokens=16, block_tokens=64, page_bytes=PAGE, pages=pages
    )


def be_owner(pages: int, address: str, sealed: bool) -> None:
    """Serve random bytes; prints what opens them and what they are, until the input ends."""
    region = OwnedRegion(shape(pages))
    region.begin_write(range(pages))
    words = region.content.view(np.uint64)
    words[:] = np.arange(len(words), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    checksums = [page.checksum for page in region.seal(range(pages))]
    server = PageServer(region, [f"tcp://{address}:0"], must_seal=sealed)
    access = server.admit()
    told = {"endpoints": access.endpoints, "id": access.key_id.hex(), "key": access.key.hex()}
    print(json.dumps({**told, "checksums": checksums}), flush=True)
    sys.stdin.read()
    server.close()


def be_taker(pages: int, sealed: bool) -> None:
    """For each [streams, pages, calls] that comes: seconds of each pull, as a list."""
    told = json.loads(sys.stdin.readline())
    access = DataAccess(
        endpoints=tuple(told["endpoints"]),
        key_id=bytes.fromhex(told["id"]),
        key=bytes.fromhex(told["key"]),
        sealed=sealed,
    )
    own = OwnedRegion(shape(pages))
    table = np.empty((pages, 4), np.uint64)
    table[:, 0] = table[:, 3] = np.random.default_rng(1).permutation(pages)
    table[:, 1] = 2
    table[:, 2] = np.array(told["checksums"], np.uint64)[table[:, 0]]
    clients: dict[int, PageClient] = {}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        streams, count, calls = json.loads(line)
        if streams not in clients:
            clients[streams] = PageClient(access, own, streams=streams)
            clients[streams].pull_table(table[: min(pages, 256)], PULL_S)
        seconds = []
        for call in range(calls):
            first = call * count % max(1, pages - count + 1)
            started = time.perf_counter()
            good = clients[streams].pull_table(table[first : first + count], PULL_S)
            seconds.append(time.perf_counter() - started)
            if not good.all():
                raise SystemExit(f"pages were not pulled: {clients[streams].missed}")
        print(json.dumps(seconds), flush=True)


class Ours:
    """Owner and taker on a network."""

    def __init__(self, stack: ExitStack, network: Network, pages: int, *, sealed: bool) -> None:
        script = [sys.executable, __file__, "--pages", str(pages), *(["--sealed"] * sealed)]
        owner = Lines(stack, [*network.owner, *script, "--owner", network.address])
        self._taker = Lines(stack, [*network.taker, *script, "--taker"])
        self._taker.say(owner.hear())
        self._taker.hear()

    def seconds(self, streams: int, pages: int, calls: int) -> list[float]:
        return self._taker.ask([streams, pages, calls])


# ── others ───────────────────────────────────────────────────────────────────────────────────────


class Iperf:
    """GB/s of iperf3 with so many streams, from the owner's side to the taker's."""

    def __init__(self, stack: ExitStack, network: Network) -> None:
        self._network = network
        server = subprocess.Popen(
            [*network.owner, "iperf3", "-s", "--forceflush", "-B", network.address],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        assert server.stdout is not None
        while "listening" not in server.stdout.readline():
            pass

    def rate(self, streams: int) -> float:
        client = ["iperf3", "-c", self._network.address, "-J", "-R", "-t", str(IPERF_S)]
        command = [*self._network.taker, *client, "-P", str(streams)]
        for _ in range(IPERF_TRIES):
            said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout)
            if "sum_received" in said.get("end", ()):
                return said["end"]["sum_received"]["bits_per_second"] / 8e9
        raise SystemExit(f"iperf3 has measured nothing: {said.get('error', said)}")


class Foreign:
    """A peer's two processes, in its virtualenv: commands as those of `nixl_peer.py`.

    Stopped unless it is their turn: their threads poll all the time.
    """

    def __init__(
        self, stack: ExitStack, network: Network, name: str, folder: Path, pages: int
    ) -> None:
        python = str(python_of(PEERS[name], folder))
        script = [python, str(HERE / "peers" / SCRIPTS[name])]
        options = {"env": os.environ | {"UCX_TLS": "tcp"}, "stderr": subprocess.DEVNULL}
        numbers = [str(pages), str(PAGE)]
        owner = Lines(stack, [*network.owner, *script, "owner", *numbers], **options)
        self._taker = Lines(stack, [*network.taker, *script, "taker", *numbers], **options)
        self._taker.say(owner.hear())
        self._both = owner, self._taker
        self.seconds(1, 1)

    def seconds(self, pages: int, calls: int) -> list[float]:
        for process in self._both:
            process.send_signal(signal.SIGCONT)
        self._taker.ask([[0, 0]])  # not counted: it wakes all threads up
        turn = [[page, page] for page in range(pages)]
        seconds = [self._taker.ask(turn) for _ in range(calls)]
        for process in self._both:
            process.send_signal(signal.SIGSTOP)
        return seconds


# ── measuring ────────────────────────────────────────────────────────────────────────────────────


def rate(size: int, rounds: list[list[float]]) -> float:
    """GB/s of the median round, by the median call of each."""
    return size / statistics.median(statistics.median(calls) for calls in rounds) / 1e9


def measured(
    network: Network, options: argparse.Namespace, sizes: Sequence[int], streams: Sequence[int]
) -> dict[str, object]:
    pages = max(sizes) // PAGE
    rounds = 2 if options.quick else options.rounds
    ours: dict[tuple[int, int], list[list[float]]] = {}
    others: dict[tuple[str, int], list[list[float]]] = {}
    wire: dict[int, list[float]] = {count: [] for count in streams}
    with ExitStack() as stack:
        pair = Ours(stack, network, pages, sealed=options.encrypt)
        iperf = Iperf(stack, network)
        start = partial(Foreign, stack, network, folder=options.folder, pages=pages)
        peers = {
            name: start(name)
            for name in PEERS
            if name not in options.without and python_of(PEERS[name], options.folder).exists()
        }
        unable: set[tuple[str, int]] = set()
        for number in range(rounds):
            for size in sizes:
                calls = min(MOST_CALLS, max(1, TURN_BYTES // size))
                for count in streams:
                    seconds = pair.seconds(count, size // PAGE, calls)
                    ours.setdefault((size, count), []).append(seconds)
                for name in [name for name in peers if (name, size) not in unable]:
                    try:
                        seconds = peers[name].seconds(size // PAGE, calls)
                    except EndedError:
                        print(f"{name} ends at {size // KIB} KiB: no row of it", file=sys.stderr)
                        unable.add((name, size))
                        peers[name] = start(name)
                    else:
                        others.setdefault((name, size), []).append(seconds)
            for count in streams:
                wire[count].append(iperf.rate(count))
            print(f"{network.name}: round {number + 1} of {rounds}", file=sys.stderr)
    iperf_rates = {count: statistics.median(rates) for count, rates in wire.items()}
    rows = []
    for size in sizes:
        rates = {count: rate(size, ours[size, count]) for count in streams}
        row: dict[str, object] = {"bytes": size, "gb_per_s": rounded(rates)}
        row |= {
            name: None if (name, size) in unable else round(rate(size, others[name, size]), 3)
            for name in peers
        }
        row["best_to_best_iperf3"] = round(max(rates.values()) / max(iperf_rates.values()), 3)
        rows.append(row)
        print(line_of(row), file=sys.stderr)
    print(f"    iperf3 {rounded(iperf_rates)} GB/s by streams", file=sys.stderr)
    return {"iperf3_gb_per_s": rounded(iperf_rates), "rows": rows, "encrypted": options.encrypt}


def rounded(rates: dict[int, float]) -> dict[str, float]:
    return {str(count): round(value, 3) for count, value in rates.items()}


def line_of(row: dict[str, Any]) -> str:
    rates = "  ".join(f"{streams}: {value:6.3f}" for streams, value in row["gb_per_s"].items())
    found = {name: row[name] for name in PEERS if name in row}
    peers = "  ".join(f"{name} {'–' if one is None else one}" for name, one in found.items())
    return (
        f"{row['bytes'] // KIB:8} KiB  GB/s by streams {rates}  {peers}  "
        f"best to iperf3's best {row['best_to_best_iperf3']:.0%}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prepare", action="store_true", help="install the peers, measure nothing")
    parser.add_argument("--quick", action="store_true", help="few rounds and sizes; write nothing")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each row ({ROUNDS})")
    parser.add_argument(
        "--encrypt", action="store_true", help="AES-256-GCM in flight; write nothing"
    )
    parser.add_argument("--without", choices=[*PEERS, "veth"], action="append", default=[])
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("~/.cache/antiphon/bench-peers").expanduser(),
        help="where the peers' virtualenvs are",
    )
    parser.add_argument("--owner", help=argparse.SUPPRESS)
    parser.add_argument("--taker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sealed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options: argparse.Namespace) -> None:
    sizes = (MIB, 16 * MIB, 64 * MIB) if options.quick else SIZES
    streams = (1, 4) if options.quick else STREAMS
    found: dict[str, object] = {"page_bytes": PAGE, "rounds": options.rounds}
    found["loopback"] = measured(Network("loopback", LOOPBACK), options, sizes, streams)
    if "veth" not in options.without:
        if (why := unmade()) is not None:
            print(f"veth is left out: {why}", file=sys.stderr)
        else:
            with veth() as network:
                found["veth"] = measured(network, options, sizes, streams)
    if not (options.quick or options.encrypt):
        print(write("transfer_tcp", found))


def prepared(folder: Path) -> None:
    def one(peer: Peer) -> str | None:
        problem = prepare(peer, folder, print)
        return problem and f"{peer.name} is left out: {problem}"

    problems = [problem for peer in PEERS.values() if (problem := one(peer))]
    raise SystemExit("\n".join(problems) or None)


def main() -> None:
    """The owner's process, the taker's, the set-up, or the measurement."""
    options = arguments()
    if options.owner is not None:
        be_owner(options.pages, options.owner, options.sealed)
    elif options.taker:
        be_taker(options.pages, options.sealed)
    elif options.prepare:
        prepared(options.folder)
    else:
        measure(options)


if __name__ == "__main__":
    main()
