"""Values into a store and out of it, on one host: ours beside memcpy, Redis and Mooncake's store.

    .venv/bin/python benchmarks/store.py --prepare    # once: the peers, in virtualenvs of their own
    .venv/bin/python benchmarks/store.py              # prints a table, writes the results
    .venv/bin/python benchmarks/store.py --quick      # few sizes and rounds, writes nothing

Every store keeps its values in a process of its own on the second core; who puts and gets is on the
first. A value begins and ends in memory as a worker's KV has it: a peer's get includes the copy to
there, ours is a fetch as a worker makes it, with generations and checksums, and a put is over when
others can get the value. Ways take turns; values are walked through in random order, in so many
bytes that they lie in no cache. `exists` looks 256 keys up at once.
"""

import argparse
import ctypes
import logging
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
from support.own_store import OwnStore
from support.result import write

HERE = Path(__file__).parent
sys.path.append(str(HERE / "peers"))
from environment import STORES, prepare  # noqa: E402
from store_pair import StorePeer, absent  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
SEVERAL = 16
"""Values in one call, where they are not larger than `SEVERAL_SIZE`."""
SEVERAL_SIZE = 4 * MIB
VALUES_BYTES = 192 * MIB
"""Six times the last-level cache of the machine it was written on."""
FEWEST_VALUES = 4
TURN_BYTES = 16 * MIB
ROOM = 2
"""What ours keeps, as a multiple of all values, like the peers: puts evict what is older."""
LOOKED_UP = 256
OURS, MEMCPY = "antiphon", "memcpy"
LARGE_CALL = 16 * MIB
"""From here on bytes count, not messages: the KV of 700 tokens of SmolLM2, of 50 of Llama 3 70B."""
GOALS = {"get_to_memcpy": 0.6, "get_to_best_peer": 5.0, "exists_us": 200.0}

Turn = Callable[[str, Sequence[Sequence[int]]], list[float]]


@dataclass
class Row:
    """Seconds of each way to put or get `values` values in one call, call by call."""

    what: str
    size: int
    values: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median_s(self, way: str) -> float:
        return statistics.median(self.seconds[way])

    def rate(self, way: str) -> float:
        """GB/s in the median call."""
        return self.size * self.values / self.median_s(way) / 1e9

    def summary(self) -> dict[str, object]:
        kept: dict[str, object] = {"what": self.what, "bytes": self.size, "values": self.values}
        kept["gb_per_s"] = {way: round(self.rate(way), 3) for way in self.seconds}
        kept["us_per_value"] = {
            way: round(self.median_s(way) / self.values * 1e6, 1) for way in self.seconds
        }
        kept["spread_gb_per_s"] = {
            way: [round(self.size * self.values / s / 1e9, 3) for s in (max(all_s), min(all_s))]
            for way, all_s in self.seconds.items()
        }
        if MEMCPY in self.seconds:
            kept["to_memcpy"] = round(self.rate(OURS) / self.rate(MEMCPY), 3)
        peers = [way for way in self.seconds if way not in (OURS, MEMCPY)]
        if peers:
            kept["to_best_peer"] = round(self.rate(OURS) / max(map(self.rate, peers)), 2)
        return kept


class Walk:
    """Values in random order, going on where the last turn ended: none is met again soon."""

    def __init__(self, values: int) -> None:
        self._order = random.Random(1).sample(range(values), values)
        self._at = 0

    def next(self, count: int) -> list[int]:
        if self._at + count > len(self._order):
            self._at = 0
        self._at += count
        return self._order[self._at - count : self._at]


def memcpy_turn(values: int, size: int) -> Turn:
    """Plain copies between two areas of this process, which is all that a get could be."""
    source, target = (np.ones(values * size // 8, np.uint64) for _ in range(2))
    copy = ctypes.CDLL(None).memcpy
    copy.argtypes, copy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None

    def turn(_what: str, groups: Sequence[Sequence[int]]) -> list[float]:
        took = []
        for group in groups:
            places = [(target.ctypes.data + n * size, source.ctypes.data + n * size) for n in group]
            started = perf_counter()
            for to, at in places:
                copy(to, at, size)
            took.append(perf_counter() - started)
        return took

    return turn


def rows(size: int, options: argparse.Namespace, cores: tuple[int, int]) -> list[Row]:
    """Everything that is measured with values of this size."""
    values = max(FEWEST_VALUES, VALUES_BYTES // size)
    with ExitStack() as stack:
        own = OwnStore(stack, cores, values, size, ROOM * values * size)
        ways: dict[str, Turn] = {OURS: own.turn, MEMCPY: memcpy_turn(values, size)}
        for peer in options.peers:
            ways[peer.name] = StorePeer(stack, peer, options.folder, cores, values, size).turn
        everything = [[number] for number in range(values)]
        for turn in ways.values():
            for _ in range(ROOM):  # memory is faulted in, and the store full
                turn("put", everything)
        own.put_calls_s.clear()
        found = []
        for count in (1, SEVERAL) if size <= SEVERAL_SIZE else (1,):
            for what in ("get", "put"):
                own.turn("put", everything)  # what the last row left as it was could go in this one
                own.put_calls_s.clear()
                found.append(one_row(what, size, count, ways, values, options.rounds))
                say(found[-1], own if what == "put" else None)
        if size == SIZES[0]:
            own.turn("put", everything)
            found += look_ups(size, ways, options.rounds)
        return found


def one_row(
    what: str, size: int, count: int, ways: dict[str, Turn], values: int, rounds: int
) -> Row:
    row = Row(what, size, count, {way: [] for way in ways})
    walk = Walk(values)  # one for all: nobody gets the values that another warmed
    calls = max(1, TURN_BYTES // (size * count))
    for number in range(rounds + 1):
        for way, turn in ways.items():
            seconds = turn(what, [walk.next(count) for _ in range(calls)])
            row.seconds[way] += seconds if number else []
    return row


def look_ups(size: int, ways: dict[str, Turn], rounds: int) -> list[Row]:
    """`exists`: are they there? `locate`, ours alone: where, and keep them there for a copy."""
    group = [list(range(LOOKED_UP))] * 20
    row = Row("exists", size, LOOKED_UP)
    places = Row("locate", size, LOOKED_UP)
    for _ in range(rounds):
        for way, turn in ways.items():
            if way != MEMCPY:
                row.seconds.setdefault(way, []).extend(turn("exists", group))
        places.seconds.setdefault(OURS, []).extend(ways[OURS]("locate", group))
    for found in (row, places):
        times = "  ".join(f"{way} {found.median_s(way) * 1e6:7.0f}" for way in found.seconds)
        print(f"{found.what:7} {LOOKED_UP} keys  {times} µs", file=sys.stderr)
    return [row, places]


def say(row: Row, own: OwnStore | None) -> None:
    rates = "  ".join(f"{way} {row.rate(way):6.2f}" for way in row.seconds)
    held = ""
    if own is not None:
        calls_us = [s / row.values * 1e6 for s in own.put_calls_s]
        held = f"  the worker waits {statistics.median(calls_us):.0f} µs a value"
        own.put_calls_s.clear()
    each = row.median_s(OURS) / row.values * 1e6
    print(
        f"{row.what} {row.values:2} of {row.size // KIB:6} KiB  {rates} GB/s  "
        f"ours {each:.0f} µs a value{held}",
        file=sys.stderr,
        flush=True,
    )


def verdict(found: Sequence[Row]) -> dict[str, object]:
    """The goals, and the worst row of each: of large calls, and of all."""
    told: dict[str, object] = {"goals": GOALS}
    gets = [row for row in found if row.what == "get"]
    for name, rows_of_it in (
        ("of_large_calls", [row for row in gets if row.size * row.values >= LARGE_CALL]),
        ("of_all_calls", gets),
    ):
        told[name] = {
            f"get_{ratio}": min((r[ratio] for r in kept if ratio in r), default=None)
            for kept in [[row.summary() for row in rows_of_it]]
            for ratio in ("to_memcpy", "to_best_peer")
        }
    for row in found:
        if row.what in ("exists", "locate"):
            told[f"{row.what}_us"] = {way: round(row.median_s(way) * 1e6, 1) for way in row.seconds}
    return told


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [peer.name for peer in STORES]
    parser.add_argument(
        "--prepare", action="store_true", help="install the peers' clients, no more"
    )
    parser.add_argument("--quick", action="store_true", help="two sizes, few rounds; write nothing")
    parser.add_argument("--without", choices=names, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=20, help="turns of each way (20)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("~/.cache/antiphon/bench-peers").expanduser(),
        help="where the peers' virtualenvs are",
    )
    options = parser.parse_args()
    options.peers = [peer for peer in STORES if peer.name not in options.without]
    if options.quick:
        options.rounds = 3
    return options


def main() -> None:
    options = arguments()
    logging.getLogger("antiphon").setLevel(logging.ERROR)  # a store that ends is no news here
    if options.prepare:
        for peer in options.peers:
            if problem := prepare(peer, options.folder, print):
                print(f"{peer.name} is left out: {problem}", file=sys.stderr)
        return
    for peer in list(options.peers):
        if problem := absent(peer, options.folder):
            print(f"{peer.name} is left out: {problem}", file=sys.stderr)
            options.peers.remove(peer)
    available = sorted(os.sched_getaffinity(0))
    cores = (available[-1], available[0])
    os.sched_setaffinity(0, {cores[0]})
    sizes = (SIZES[0], SIZES[3]) if options.quick else SIZES
    found = [row for size in sizes for row in rows(size, options, cores)]
    told = verdict(found)
    print(told, file=sys.stderr)
    if not options.quick:
        kept = {"store_core": cores[1], "user_core": cores[0], **told}
        kept["peers"] = {peer.name: f"{peer.package}: {peer.note}" for peer in options.peers}
        print(write("store", {**kept, "rows": [row.summary() for row in found]}))


if __name__ == "__main__":
    main()
