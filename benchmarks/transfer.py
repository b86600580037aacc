"""KV pages from one process to another on one host: pulls beside memcpy and NIXL over UCX.

    .venv/bin/python benchmarks/transfer.py --prepare    # once: NIXL, in a virtualenv of its own
    .venv/bin/python benchmarks/transfer.py              # prints a table, writes the results
    .venv/bin/python benchmarks/transfer.py --quick      # few rounds, writes nothing

An owner process has sealed pages in its region, whose descriptor comes over a Unix socket. In turn,
the taker, on another core, pulls so many pages (generation, copy, checksum), copies as many others
out of a mapping of the same memory by memcpy, and NIXL's taker reads as many from NIXL's owner.
Pages are walked through in random order, so that they lie in no cache of the taker's. Times are by
the clock and hold all of a call, Python included. Who is not on turn is stopped.

Then an owner computes prompts of 2,000 tokens with SmolLM2-135M on one core, and what is added by
splitting the request there (sealing and pulling) is compared with the prefill.
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from support.result import write

from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.types import KvShape, OfferedPage, PagePull

HERE = Path(__file__).parent
sys.path.append(str(HERE / "peers"))
from environment import NIXL, prepare, python_of  # noqa: E402
from nixl_pair import NixlPair, Pairs  # noqa: E402

SMOLLM2_PAGE = 368_640
KIB, MIB = 1 << 10, 1 << 20
REGION_BYTES = 192 * MIB
"""Six times the last-level cache of the machine it was written on."""
ROWS: dict[int, tuple[int, ...]] = {SMOLLM2_PAGE: (1, 4, 16, 64, 256), 64 * KIB: (1, 16, 256, 1024)}
"""Pages a pull, by page size."""
TURN_BYTES = 4 * MIB
"""Small pulls are repeated up to so many bytes a turn, on other pages each time."""
PROMPT_TOKENS = 2000
STEP_TOKENS = 512
LONGEST_S = 300


@dataclass
class Row:
    """Seconds of each way to move `pages` pages, round by round."""

    page_bytes: int
    pages: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.page_bytes * self.pages

    def rate(self, way: str) -> float:
        """GB/s in the median round."""
        return self.bytes / statistics.median(self.seconds[way]) / 1e9

    def summary(self) -> dict[str, object]:
        """What is kept: rates in GB/s, and the two ratios that have goals."""
        rates = {way: round(self.rate(way), 2) for way in self.seconds}
        best = {way: round(self.bytes / min(s) / 1e9, 2) for way, s in self.seconds.items()}
        kept: dict[str, object] = {"page_bytes": self.page_bytes, "pages": self.pages}
        kept |= {"gb_per_s": rates, "best_gb_per_s": best}
        kept["to_memcpy"] = round(self.rate("pull") / self.rate("memcpy"), 3)
        if "nixl" in rates:
            kept["to_nixl"] = round(self.rate("pull") / self.rate("nixl"), 3)
        return kept


# ── the owner's process ──────────────────────────────────────────────────────────────────────────


def own_pages(sock: socket.socket, page_bytes: int) -> None:
    """Seal a region of random bytes, offer all of it, and wait for the end."""
    shape = KvShape(
        layout="benchmark",
        page_tokens=16,
        block_tokens=64,
        page_bytes=page_bytes,
        pages=REGION_BYTES // page_bytes,
    )
    region = OwnedRegion(shape)
    region.begin_write(range(shape.pages))
    words = region.content.view(np.uint64)
    words[:] = np.arange(len(words), dtype=np.uint64)
    socket.send_fds(sock, [b"."], [region.fd])
    lines = sock.makefile("rw")
    tell(lines, asdict(shape))
    tell(lines, [asdict(offer) for offer in region.seal(range(shape.pages))])
    lines.read()


def own_requests(sock: socket.socket) -> None:
    """Compute a prompt for each line that comes; tells the offer and the seconds of each part."""
    from antiphon.core.config import build
    from antiphon.live.loaded_model import load_model
    from antiphon.types import Chunk, Request, RequestId, SamplingParams, StepPlan

    values = {"model": {"name": "smollm2-135m"}, "kv": {"memory_bytes": REGION_BYTES}}
    model = load_model(build(values), lambda line: None, shares_kv=True)
    region, chance = model.region, random.Random(0)
    assert region is not None
    socket.send_fds(sock, [b"."], [region.fd])
    lines = sock.makefile("rw")
    tell(lines, asdict(region.shape))
    count = -(-PROMPT_TOKENS // region.shape.page_tokens)
    for number, _ in enumerate(lines):
        prompt = tuple(chance.randrange(100, 49_000) for _ in range(PROMPT_TOKENS))
        first = number * count % (region.shape.pages - count)
        pages = tuple(range(first, first + count))
        request = Request(
            id=RequestId(str(number)),
            prompt=prompt,
            sampling=SamplingParams(temperature=0.0, seed=0, max_tokens=2),
        )
        started = time.perf_counter()
        for begin in range(0, PROMPT_TOKENS, STEP_TOKENS):
            chunk = Chunk(
                request=request,
                sequence=0,
                tokens=prompt[begin : begin + STEP_TOKENS],
                start=begin,
                page_start=len(pages) if begin else 0,
                new_pages=() if begin else pages,
                samples=(0,) if begin + STEP_TOKENS >= PROMPT_TOKENS else (),
            )
            model.engine.forward(StepPlan(number=number, chunks=(chunk,)))
        prefilled = time.perf_counter()
        offers = region.seal(pages)
        sealed = time.perf_counter()
        seconds = {"prefill_s": prefilled - started, "seal_s": sealed - prefilled}
        tell(lines, {**seconds, "offers": [asdict(offer) for offer in offers]})


def tell(lines, message: object) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


class Owner:
    """An owner's process on a core of its own, its descriptor, and lines of JSON from it."""

    def __init__(self, stack: ExitStack, core: int, *arguments: str) -> None:
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        command = [sys.executable, __file__, "--owner", str(theirs.fileno()), *arguments]
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        theirs.close()
        ours.settimeout(LONGEST_S)
        _, (self.fd,), _, _ = socket.recv_fds(ours, 1, 1)
        stack.callback(os.close, self.fd)
        self._lines = stack.enter_context(ours.makefile("rw"))
        self.shape = KvShape(**self.next())

    def next(self):
        line = self._lines.readline()
        if not line:
            raise SystemExit("the owner's process ended")
        return json.loads(line)

    def ask(self):
        tell(self._lines, "next")
        return self.next()


# ── the taker ────────────────────────────────────────────────────────────────────────────────────


class Walk:
    """Pages in random order, going on where the last round ended: none is met again soon."""

    def __init__(self, pages: int) -> None:
        chance = random.Random(1)
        self._sources = chance.sample(range(pages), pages)
        self._targets = chance.sample(range(pages), pages)
        self._at = 0

    def next(self, count: int) -> Pairs:
        if self._at + count > len(self._sources):
            self._at = 0
        span = slice(self._at, self._at + count)
        self._at += count
        return list(zip(self._sources[span], self._targets[span], strict=True))


def memcpy_between(
    source_fd: int, mapped: MappedRegion, own: OwnedRegion
) -> Callable[[Pairs], float]:
    """Plain copies of the same pages, out of a mapping of our own."""
    size, header = own.shape.page_bytes, mapped.header
    area = mmap.mmap(source_fd, header.region_bytes, prot=mmap.PROT_READ)
    first = np.frombuffer(area, np.uint8)[header.pages_at :]
    target = own.content.ctypes.data
    copy = ctypes.CDLL(None).memcpy
    copy.argtypes, copy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None
    first[:: mmap.PAGESIZE].max()  # all of the mapping is faulted in, as for the pulls

    def seconds(pairs: Pairs) -> float:
        source = first.ctypes.data
        places = [(target + t * size, source + s * size) for s, t in pairs]
        started = time.perf_counter()
        for to, at in places:
            copy(to, at, size)
        return time.perf_counter() - started

    return seconds


def rows(page_bytes: int, rounds: int, cores: tuple[int, int], nixl: Path | None) -> Iterator[Row]:
    """All rows of one page size, each way in turn in every round."""
    with ExitStack() as stack:
        owner = Owner(stack, cores[1], "--page-bytes", str(page_bytes))
        offers = [OfferedPage(**offer) for offer in owner.next()]
        own = OwnedRegion(owner.shape)
        mapped = MappedRegion(owner.fd, own)
        stack.callback(mapped.close)

        def pull(pairs: Pairs) -> float:
            pages = [PagePull(offers[source], target) for source, target in pairs]
            started = time.perf_counter()
            good = mapped.pull(pages)
            took = time.perf_counter() - started
            if not all(good):
                raise SystemExit(f"pages were not pulled: {mapped.missed}")
            return took

        memcpy = memcpy_between(owner.fd, mapped, own)
        ways: dict[str, Callable[[list[Pairs]], list[float]]] = {
            "pull": lambda turn: list(map(pull, turn)),
            "memcpy": lambda turn: list(map(memcpy, turn)),
        }
        if nixl is not None:
            ways["nixl"] = NixlPair(
                stack, nixl, cores, pages=owner.shape.pages, page_bytes=page_bytes
            ).turn
        walk = Walk(owner.shape.pages)  # one for all: nobody gets the pages that another warmed
        for count in ROWS[page_bytes]:
            row = Row(page_bytes, count, {way: [] for way in ways})
            calls = max(1, TURN_BYTES // row.bytes)
            for number in range(rounds + 1):
                for way, turn in ways.items():
                    seconds = turn([walk.next(count) for _ in range(calls)])
                    row.seconds[way] += seconds if number else []
            yield row


def request(rounds: int, cores: tuple[int, int]) -> dict[str, float]:
    """What a split adds to a request: sealing at the owner, pulling at the taker."""
    with ExitStack() as stack:
        owner = Owner(stack, cores[1], "--requests")
        own = OwnedRegion(owner.shape)
        mapped = MappedRegion(owner.fd, own)
        stack.callback(mapped.close)
        seen: dict[str, list[float]] = {"prefill_s": [], "seal_s": [], "pull_s": []}
        for number in range(rounds + 1):
            told = owner.ask()
            offers = [OfferedPage(**offer) for offer in told["offers"]]
            pages = [PagePull(offer, offer.page) for offer in offers]
            started = time.perf_counter()
            good = mapped.pull(pages)
            took = time.perf_counter() - started
            if not all(good):
                raise SystemExit(f"pages were not pulled: {mapped.missed}")
            if number:
                for name, value in (*told.items(), ("pull_s", took)):
                    if name in seen:
                        seen[name].append(value)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    added = medians["seal_s"] + medians["pull_s"]
    kept = {name: round(value, 6) for name, value in medians.items()}
    return kept | {"tokens": PROMPT_TOKENS, "added_share": round(added / medians["prefill_s"], 5)}


def line_of(row: Row) -> str:
    rates = "  ".join(f"{way} {row.rate(way):5.1f}" for way in row.seconds)
    summary = row.summary()
    ratios = "  ".join(
        f"{name.replace('_', ' ')} {summary[name]:.0%}"
        for name in ("to_memcpy", "to_nixl")
        if name in summary
    )
    return f"{row.pages:5} pages of {row.page_bytes:7} bytes  {rates} GB/s  {ratios}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prepare", action="store_true", help="install NIXL, measure nothing")
    parser.add_argument("--quick", action="store_true", help="few rounds; write nothing")
    parser.add_argument("--without", choices=["nixl", "request"], action="append", default=[])
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("~/.cache/antiphon/bench-peers").expanduser(),
        help="where the peer's virtualenv is",
    )
    parser.add_argument("--owner", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--page-bytes", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--requests", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options: argparse.Namespace, cores: Sequence[int]) -> None:
    pair = (cores[-1], cores[0])
    os.sched_setaffinity(0, {pair[0]})
    nixl = options.folder if "nixl" not in options.without else None
    if nixl is not None and not python_of(NIXL, nixl).exists():
        print("NIXL is left out: run this with --prepare first", file=sys.stderr)
        nixl = None
    found: dict[str, object] = {"owner_core": pair[1], "taker_core": pair[0]}
    kept = []
    for page_bytes in ROWS:
        for row in rows(page_bytes, 5 if options.quick else 60, pair, nixl):
            kept.append(row.summary())
            print(line_of(row), file=sys.stderr)
    found["rows"] = kept
    if "request" not in options.without:
        found["request"] = request(1 if options.quick else 5, pair)
        print(found["request"], file=sys.stderr)
    if not options.quick:
        print(write("transfer", found))


def main() -> None:
    """An owner's process, the set-up, or the measurement."""
    options = arguments()
    if options.owner is not None:
        with socket.socket(fileno=options.owner) as sock:
            own_requests(sock) if options.requests else own_pages(sock, options.page_bytes)
    elif options.prepare:
        problem = prepare(NIXL, options.folder, print)
        raise SystemExit(problem and f"{NIXL.name} is left out: {problem}")
    else:
        measure(options, sorted(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main()
