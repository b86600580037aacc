"""The disk tier of the store, against plain writes and reads of the same bytes.

    .venv/bin/python benchmarks/disk.py                 writes benchmarks/results/disk.json
    .venv/bin/python benchmarks/disk.py --quick         few rounds; writes nothing
    .venv/bin/python benchmarks/disk.py --folder PATH   on the disk to be measured

Blocks are those of SmolLM2-135M: 64 tokens, 4 pages, 1.5 MB. Each round writes and reads the same
blocks by the tier and by plain `pwritev` and `preadv`, in turn; a rate is the median of its rounds.
CPU is that of the calling thread, the system's copies in it included: it says the same on a machine
that is not quiet. `cached`: the system still has the bytes in memory, so that what is seen is our
own work (header, checksums, a look-up, opening the file). `cold`: it was told to forget them.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from support.result import write

from antiphon.store.disk import Appended, DiskTier, Fsync
from antiphon.store.record import KvOrigin, Page, RecordedBlock, new_pages
from antiphon.store.transfer import OwnedRegion
from antiphon.types import KvShape

PAGE_BYTES = 368_640
SHAPE = KvShape(layout="disk", page_tokens=16, block_tokens=64, page_bytes=PAGE_BYTES, pages=64)
ORIGIN = KvOrigin.of(SHAPE, bytes(32))
BLOCK_BYTES = ORIGIN.block_bytes


class Blocks:
    """Sealed blocks in a region, as a store has them. Sixteen; block n is block n modulo 16."""

    def __init__(self) -> None:
        self._region = OwnedRegion(SHAPE)
        self._pages = list(self._region.content.reshape(SHAPE.pages, PAGE_BYTES))
        chance = np.random.default_rng(0)
        for page in self._pages:
            page[:] = chance.integers(0, 256, PAGE_BYTES, np.uint8)
        self._sealed = self._region.seal(range(SHAPE.pages))
        self._targets = new_pages(replace(ORIGIN, block_tokens=SHAPE.pages * SHAPE.page_tokens))

    def pages(self, number: int) -> list[Page]:
        first = number * ORIGIN.pages_per_block % SHAPE.pages
        return self._pages[first : first + ORIGIN.pages_per_block]

    def into(self, number: int) -> list[Page]:
        """Where to read to. Each time another place, as in a store: none is warm from the last."""
        first = number * ORIGIN.pages_per_block % SHAPE.pages
        return self._targets[first : first + ORIGIN.pages_per_block]

    def checksums(self, number: int) -> list[int]:
        first = number * ORIGIN.pages_per_block % SHAPE.pages
        return [page.checksum for page in self._sealed[first : first + ORIGIN.pages_per_block]]


def key_of(number: int) -> bytes:
    return number.to_bytes(32, "little")


def forget(folder: Path) -> None:
    """Let the system drop what it has of these files in memory."""
    os.sync()
    for file in folder.iterdir():
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Cost(NamedTuple):
    """Of one block."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], None], count: int) -> Cost:
    """What a block costs, if `work` is that of `count` blocks."""
    started, cpu = time.perf_counter(), time.thread_time()
    work()
    cpu_s = time.thread_time() - cpu
    return Cost((time.perf_counter() - started) / count, cpu_s / count)


def tier_round(folder: Path, blocks: Blocks, count: int, order: list[int]) -> dict[str, Cost]:
    """One life of a tier, then a second one that recovers."""
    options = {"limit_bytes": 4 * count * BLOCK_BYTES, "fsync": Fsync.NEVER}

    def append() -> None:
        for number in range(count):
            block = RecordedBlock(key=key_of(number), parent=None)
            done = disk.append(block, blocks.pages(number), blocks.checksums(number))
            if not isinstance(done, Appended):
                raise SystemExit(f"not written: {done}")

    def read() -> None:
        for number in order:
            if missed := disk.read(key_of(number), blocks.into(number)):
                raise SystemExit(f"not read: {missed}")

    disk = DiskTier(folder, ORIGIN, **options)
    found = {"append": timed(append, count), "read_cached": timed(read, count)}
    forget(folder)
    found["read_cold"] = timed(read, count)
    disk.close()
    forget(folder)
    disk = DiskTier(folder, ORIGIN, **options)
    found["recover"] = timed(lambda: check(len(disk.recover()) == count), count)
    disk.close()
    return found


def check(holds: bool) -> None:
    if not holds:
        raise SystemExit("blocks were lost")


def plain_round(folder: Path, blocks: Blocks, count: int, order: list[int]) -> dict[str, Cost]:
    """The same bytes in one file, with nothing kept about them."""

    def append() -> None:
        for number in range(count):
            os.pwritev(fd, [page.data for page in blocks.pages(number)], number * BLOCK_BYTES)

    def read() -> None:
        for number in order:
            os.preadv(fd, [page.data for page in blocks.into(number)], number * BLOCK_BYTES)

    fd = os.open(folder / "plain", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    found = {"append": timed(append, count), "read_cached": timed(read, count)}
    forget(folder)
    found["read_cold"] = timed(read, count)
    os.close(fd)
    return found


def measure(parent: Path | None, rounds: int, count: int) -> dict[str, object]:
    blocks = Blocks()
    costs: dict[str, list[Cost]] = defaultdict(list)
    for number in range(rounds + 1):
        order = random.Random(number).sample(range(count), count)
        for name, turn in (("tier", tier_round), ("plain", plain_round)):
            folder = Path(tempfile.mkdtemp(prefix="antiphon-disk-", dir=parent))
            try:
                for what, cost in turn(folder, blocks, count, order).items():
                    costs[f"{name}_{what}"] += [cost] if number else []
            finally:
                shutil.rmtree(folder)
    medians = {
        what: Cost(*map(statistics.median, zip(*seen, strict=True))) for what, seen in costs.items()
    }
    found: dict[str, object] = {"block_bytes": BLOCK_BYTES, "blocks": count, "rounds": rounds}
    for what in ("append", "read_cached", "read_cold"):
        tier, plain = medians[f"tier_{what}"], medians[f"plain_{what}"]
        found[what] = {
            "tier_gb_per_s": round(BLOCK_BYTES / tier.wall_s / 1e9, 3),
            "plain_gb_per_s": round(BLOCK_BYTES / plain.wall_s / 1e9, 3),
            "ratio": round(plain.wall_s / tier.wall_s, 3),
            "tier_cpu_us": round(tier.cpu_s * 1e6, 1),
            "plain_cpu_us": round(plain.cpu_s * 1e6, 1),
        }
        print(f"{what:12} {found[what]}", file=sys.stderr)
    recover = medians["tier_recover"]
    blocks_per_gb = 1e9 / BLOCK_BYTES
    found["recover_s_per_gb"] = round(recover.wall_s * blocks_per_gb, 4)
    found["recover_cpu_s_per_gb"] = round(recover.cpu_s * blocks_per_gb, 4)
    print(f"recovery {found['recover_s_per_gb']} s a GB, headers on disk only", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds; write nothing")
    parser.add_argument("--folder", type=Path, help="where to write; without it: temporary files")
    options = parser.parse_args()
    found = measure(options.folder, *((2, 100) if options.quick else (7, 700)))
    if not options.quick:
        print(write("disk", found))


if __name__ == "__main__":
    main()
