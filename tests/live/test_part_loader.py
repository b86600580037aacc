"""What comes over TCP is on the device part by part; nobody reads it before it is proven."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from antiphon.engine.device import Current, DeviceKv
from antiphon.engine.kv_memory import KvLayout
from antiphon.live.part_loader import PartLoader
from antiphon.live.staged_region import StagedRegion
from antiphon.live.tcp_pages import TcpPages
from antiphon.store.transfer import OwnedRegion
from antiphon.store.transfer.generations import Pages
from antiphon.store.transfer.tcp import PageServer
from antiphon.types import (
    Incarnation,
    KvShape,
    LeaseId,
    Offer,
    OfferedPage,
    Pull,
    RequestId,
    WorkerId,
)

pytestmark = pytest.mark.timeout(60)
PAGES, LAYERS = 12, 6
WHOLE = KvLayout(layers=LAYERS, kv_heads=2, head_width=64, page_tokens=16)
ONE_LAYER = replace(WHOLE, layers=1)
"""As of a windowed model whose pages have a layer each."""
R = RequestId("r")


def shape_of(layout: KvLayout) -> KvShape:
    return KvShape(
        layout="t", page_tokens=16, block_tokens=64, page_bytes=layout.page_bytes, pages=PAGES
    )


class WatchedRegion(StagedRegion):
    """Keeps what is loaded, in order, and whether the device's pages counted as old meanwhile."""

    def __init__(self, layout: KvLayout) -> None:
        super().__init__(shape_of(layout))
        self.device = DeviceKv(layout, PAGES, torch.device("cpu"), self)
        self.attach(self.device)
        self.loads: list[tuple[int, int]] = []
        self.then: Callable[[], None] = lambda: None

    def load(self, pages: Pages, start: int, end: int) -> None:
        """See `StagedRegion`."""
        assert all(self.device.current(page) is Current.HOST for page in pages)
        super().load(pages, start, end)
        self.loads.append((start, end))
        self.then()

    def pages(self) -> np.ndarray:
        return self.content.reshape(PAGES, -1)

    def on_device(self) -> np.ndarray:
        return self.device.tensor.reshape(PAGES, -1).view(torch.uint8).numpy()

    def states(self, pages: tuple[int, ...]) -> set[Current]:
        return {self.device.current(page) for page in pages}


@dataclass
class Both:
    """An owner's pages, a taker whose pages are torch's, and what is between them."""

    owner: OwnedRegion
    sealed: tuple[OfferedPage, ...]
    own: WatchedRegion
    loader: PartLoader
    tcp: TcpPages
    targets: tuple[int, ...] = field(default=())

    def pull(self, sources: tuple[int, ...], targets: tuple[int, ...]) -> Pull:
        pages = tuple(self.sealed[source] for source in sources)
        offer = Offer(
            request=R,
            attempt=1,
            lease=LeaseId("l"),
            ttl_s=60.0,
            owner=WorkerId("p0"),
            incarnation=Incarnation("p0-1"),
            kv=self.owner.shape,
            numerics="t",
            pages=pages,
            sequences=(),
        )
        return Pull(request=R, attempt=1, offer=offer, sources=pages, targets=targets)


@contextmanager
def both_of(layout: KvLayout) -> Iterator[Both]:
    with ExitStack() as until_end:
        owner, own = OwnedRegion(shape_of(layout)), WatchedRegion(layout)
        owner.begin_write(range(PAGES))
        owner.content[:] = np.random.default_rng(1).integers(0, 256, owner.content.size)
        sealed = owner.seal(range(PAGES))
        server = PageServer(owner, ("tcp://127.0.0.1:0",))
        until_end.callback(server.close)
        loader = PartLoader(own)
        until_end.callback(loader.close)
        threads, closing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        tcp = TcpPages(WorkerId("p0"), own, threads, closing=closing, timeout_s=20.0, loader=loader)
        until_end.callback(threads.shutdown)
        until_end.callback(closing.shutdown)
        until_end.callback(tcp.close)
        tcp.access_came(server.admit())
        yield Both(owner, sealed, own, loader, tcp)


@pytest.fixture
def both() -> Iterator[Both]:
    with both_of(WHOLE) as made:
        yield made


async def test_all_of_a_pull_is_on_the_device_in_the_order_of_layers(both: Both) -> None:
    sources, targets = (0, 3, 5, 7, 8), (9, 1, 0, 4, 2)
    copied = await both.tcp.copy(both.pull(sources, targets))
    assert copied.good == (True,) * 5, copied.problem
    starts, ends = zip(*both.own.loads, strict=True)
    assert starts[0] == 0
    assert ends[-1] == WHOLE.page_bytes
    assert starts[1:] == ends[:-1]
    assert both.own.states(targets) == {Current.BOTH}
    theirs = both.owner.content.reshape(PAGES, -1)
    assert (both.own.on_device()[list(targets)] == theirs[list(sources)]).all()


async def test_of_windowed_layers_the_pages_that_move_are_loaded_and_no_other() -> None:
    with both_of(ONE_LAYER) as both:
        last_window = (9, 10, 11)
        copied = await both.tcp.copy(both.pull(last_window, (2, 6, 7)))
        assert all(copied.good), copied.problem
        assert both.own.loads == [(0, ONE_LAYER.page_bytes)]
        assert both.own.states((2, 6, 7)) == {Current.BOTH}
        rest = [page for page in range(PAGES) if page not in (2, 6, 7)]
        assert not both.own.on_device()[rest].any()


def test_the_first_layers_are_there_while_the_rest_is_on_its_way(both: Both) -> None:
    """And after half of the parts comes no more: what was loaded is nobody's."""
    own, targets, half = both.own, (3, 8), len(both.loader.parts) // 2
    assert own.back_each(targets)
    own.begin_write(targets)
    own.pages()[list(targets)] = 7
    load = both.loader.begin(targets)
    load.here(half)
    load.finish()
    here = both.loader.parts[half - 1].end
    assert own.loads == [(0, here)]
    on_device = own.on_device()[list(targets)]
    assert (on_device[:, :here] == 7).all()
    assert (on_device[:, here:] == 0).all()
    assert own.states(targets) == {Current.HOST}
    own.pages()[list(targets)] = 9
    own.device.bring(np.array(targets))
    assert (own.on_device()[list(targets)] == 9).all(), "the engine reads what came instead"


async def test_with_a_page_that_is_bad_none_counts_as_loaded(both: Both) -> None:
    pull, targets = both.pull((0, 1, 2), (5, 6, 7)), (5, 6, 7)
    both.owner.content.reshape(PAGES, -1)[1, -1] ^= 1
    copied = await both.tcp.copy(pull)
    assert copied.good == (True, False, True)
    assert both.own.states(targets) == {Current.HOST}
    both.own.device.bring(np.array([5, 7]))
    theirs = both.owner.content.reshape(PAGES, -1)
    assert (both.own.on_device()[[5, 7]] == theirs[[0, 2]]).all()


async def test_one_that_is_aborted_ends_with_its_last_copy(both: Both) -> None:
    """Whatever has come by then: it counts as loaded if all has."""
    targets = tuple(range(PAGES))
    both.own.then = lambda: both.tcp.stop(R, 1)
    copied = await both.tcp.copy(both.pull(targets, targets))
    loads = list(both.own.loads)
    assert both.own.states(targets) == {Current.BOTH if all(copied.good) else Current.HOST}
    assert await both.tcp.copy(both.pull(targets[:1], targets[:1]))
    assert both.own.loads[: len(loads)] == loads


async def test_a_device_that_fails_ends_the_pull_with_its_error(both: Both) -> None:
    def fail() -> None:
        raise RuntimeError("device lost")

    both.own.then = fail
    with pytest.raises(RuntimeError, match="device lost"):
        await both.tcp.copy(both.pull((0, 1), (0, 1)))
    assert both.own.states((0, 1)) == {Current.HOST}


def test_one_that_fails_ends_with_its_last_copy(both: Both) -> None:
    """Its pages are somebody else's then: a later part would be read from what they write."""
    own, second, second_may = both.own, threading.Event(), threading.Event()

    def fail_once() -> None:
        if len(own.loads) == 1:
            raise RuntimeError("device lost")
        second.set()
        assert second_may.wait(30)

    own.then = fail_once
    assert own.back_each((3, 8))
    load = both.loader.begin((3, 8))
    load.here(1)
    load.here(2)
    assert second.wait(30)
    with ThreadPoolExecutor(1) as other:
        ending = other.submit(load.finish)
        with pytest.raises(TimeoutError):
            ending.result(0.2)
        second_may.set()
        with pytest.raises(RuntimeError, match="device lost"):
            ending.result(30)
