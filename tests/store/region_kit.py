"""Small regions, and copiers that leave a check out: negative controls for the laws of pulls."""

import ctypes
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.page_copy import CORRUPT, GOOD, OVERTAKEN, ROW_WORDS, STALE, Places
from antiphon.types import KvShape, OfferedPage, PagePull

SHAPE = KvShape(layout="test", page_tokens=16, block_tokens=64, page_bytes=1024, pages=8)


def region(**changes: object) -> OwnedRegion:
    return OwnedRegion(replace(SHAPE, **changes))


def page_of(owner: OwnedRegion, page: int) -> npt.NDArray[np.uint8]:
    return owner.content.reshape(owner.shape.pages, -1)[page]


def write(owner: OwnedRegion, page: int, seed: int) -> npt.NDArray[np.uint8]:
    """What a new owner of a page does, but for the sealing; returns a copy of the content."""
    owner.begin_write([page])
    content = np.random.default_rng(seed).integers(0, 256, owner.shape.page_bytes, np.uint8)
    page_of(owner, page)[:] = content
    return content


def offered(owner: OwnedRegion, page: int, seed: int) -> OfferedPage:
    write(owner, page, seed)
    return owner.seal([page])[0]


def pull(*pages: tuple[OfferedPage, int]) -> list[PagePull]:
    return [PagePull(source, target) for source, target in pages]


def checksum(content: npt.NDArray[np.uint8]) -> int:
    return xxhash.xxh3_64_intdigest(content)


def maps() -> int:
    """How many areas of this process are KV regions."""
    return Path("/proc/self/maps").read_text().count("antiphon-kv")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ── copiers that are wrong ───────────────────────────────────────────────────────────────────────


def _copier(*, generations: bool, checksums: bool):
    def copy(places: Places, table: "array[int]") -> None:
        for row in range(0, len(table), ROW_WORDS):
            page, generation, expected, target = table[row : row + ROW_WORDS]
            word = ctypes.c_uint64.from_address(places.generations_at + 8 * page)
            into = places.own_pages_at + target * places.page_bytes
            if generations and word.value != generation:
                table[row] = STALE
                continue
            ctypes.memmove(into, places.pages_at + page * places.page_bytes, places.page_bytes)
            if generations and word.value != generation:
                table[row] = OVERTAKEN
                continue
            copied = (ctypes.c_char * places.page_bytes).from_address(into)
            right = not checksums or xxhash.xxh3_64_intdigest(copied) == expected
            table[row] = GOOD if right else CORRUPT

    return copy


ignores_generations = _copier(generations=False, checksums=True)
ignores_checksums = _copier(generations=True, checksums=False)
ignores_both = _copier(generations=False, checksums=False)
