"""Owners that serve pages over TCP, here and in other processes, and what a taker asks of them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from owner_process import content_of, reassign, shape_of
from region_kit import checksum

from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.tcp import PageClient, PageServer, ServerLimits, StreamLimits
from antiphon.types import DataAccess, OfferedPage, PagePull

LOOPBACK = "tcp://127.0.0.1:0"
PAGES, PAGE_BYTES = 12, 48 << 10
TIMEOUT_S = 20.0
"""Of pulls that are to succeed: on a busy machine too."""
PATIENT = StreamLimits()
QUICK = StreamLimits(connect_s=5.0, stall_s=0.3, tick_s=0.01)
FIRST_GENERATION = 2
"""What each page of a new owner is sealed under."""


def sealed_region(pages: int = PAGES, page_bytes: int = PAGE_BYTES) -> OwnedRegion:
    """An owner's, full of sealed pages."""
    owner = OwnedRegion(shape_of(pages, page_bytes))
    for page in range(pages):
        reassign(owner, page, corrupt=False)
    return owner


@contextmanager
def serving(owner: OwnedRegion, *endpoints: str, **options: object) -> Iterator[PageServer]:
    limits = options.pop("limits", ServerLimits())
    server = PageServer(owner, endpoints or (LOOPBACK,), limits=limits, **options)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def reading(
    access: DataAccess, own: OwnedRegion, limits: StreamLimits = PATIENT, streams: int = 2
) -> Iterator[PageClient]:
    client = PageClient(access, own, streams=streams, limits=limits)
    try:
        yield client
    finally:
        client.close()


def offered(
    pages: Sequence[int], generation: int = FIRST_GENERATION, page_bytes: int = PAGE_BYTES
) -> list[PagePull]:
    """Pages of an owner of `sealed_region`'s kind, each into the page of the same number."""
    made = []
    for page in pages:
        promised = checksum(content_of(page, generation, page_bytes))
        made.append(PagePull(OfferedPage(page, generation, promised), page))
    return made


def wrong(own: OwnedRegion, pulls: Sequence[PagePull], good: Sequence[bool]) -> int:
    """How many pages that are called good are not what was offered."""
    words = own.content.view(np.uint64).reshape(own.shape.pages, -1)
    return sum(
        is_good
        and not np.array_equal(
            words[pull.target],
            content_of(pull.source.page, pull.source.generation, own.shape.page_bytes),
        )
        for pull, is_good in zip(pulls, good, strict=True)
    )


@dataclass
class OwnerProcess:
    process: "subprocess.Popen[str]"
    access: DataAccess

    def go(self) -> None:
        """Reassign pages from now on."""
        self._say("go")

    def counts(self) -> dict[str, int]:
        self._say("counts")
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def _say(self, word: str) -> None:
        assert self.process.stdin is not None
        print(word, file=self.process.stdin, flush=True)


@contextmanager
def owner_process(
    *endpoints: str,
    pages: int = PAGES,
    page_bytes: int = PAGE_BYTES,
    corrupt_every: int = 0,
    sealed: bool = False,
    wrap: Callable[[list[str]], list[str]] = lambda command: command,
) -> Iterator[OwnerProcess]:
    """A process that serves; `wrap` makes the command that it is started by."""
    numbers = map(str, (pages, page_bytes, corrupt_every, int(sealed)))
    script = str(Path(__file__).with_name("tcp_owner.py"))
    command = [sys.executable, script, *numbers, *(endpoints or (LOOPBACK,))]
    pipe = subprocess.PIPE
    with subprocess.Popen(wrap(command), stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            yield OwnerProcess(
                process,
                DataAccess(
                    endpoints=tuple(told["endpoints"]),
                    key_id=bytes.fromhex(told["id"]),
                    key=bytes.fromhex(told["key"]),
                    sealed=sealed,
                ),
            )
        finally:
            process.kill()
