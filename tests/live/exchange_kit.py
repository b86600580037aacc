"""Two workers in one process that pass KV to each other, with engines that check their KV."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType

from live_kit import BLOCK_TOKENS, INFO, PAGE_TOKENS, PAGES, SCRIPT, Clock, scheduler

from antiphon.core.handover import Owner
from antiphon.errors import PeerError
from antiphon.live.kv_exchange import Exchange
from antiphon.live.peer_port import TakenLeases
from antiphon.live.pull_path import Copied
from antiphon.live.worker import Worker
from antiphon.sim import ScriptedEngine, ShadowKv
from antiphon.types import (
    Event,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefused,
    LinkUse,
    Offer,
    OfferedPage,
    Pull,
    Pulled,
    Request,
    RequestId,
    SequenceEnded,
    Stage,
    TokenGenerated,
    WorkerId,
)

KV = KvShape(
    layout="shadow",
    page_tokens=PAGE_TOKENS,
    block_tokens=BLOCK_TOKENS,
    page_bytes=64,
    pages=PAGES,
)


class ShadowPages:
    """Seals pages by what they hold; `gate` lets a test make it slow, `broken` makes it fail."""

    def __init__(self, shadow: ShadowKv) -> None:
        self.shadow = shadow
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False

    def seal(self, pages: Sequence[int]) -> tuple[OfferedPage, ...]:
        assert self.gate.wait(60)
        if self.broken:
            raise OSError("no memory")
        return tuple(OfferedPage(page, 2, hash(self.shadow.content(page))) for page in pages)


class LocalPullPath:
    """Owners in the same process, by incarnation; whoever is not in `owners` is gone.

    `copy_pages` does the copying, on a thread of `threads`.
    """

    def __init__(
        self,
        taker: Callable[[], Incarnation],
        owners: Mapping[Incarnation, TakenLeases],
        copy_pages: Callable[[Pull], Copied],
        threads: Executor,
    ) -> None:
        self._taker = taker
        self._owners = owners
        self.copy_pages = copy_pages
        self._threads = threads

    async def take(self, owner: Owner, lease: LeaseId, attempt: int) -> LeaseHeld | LeaseRefused:
        return self._of(owner).take(lease, self._taker(), attempt)

    async def renew(
        self, owner: Owner, leases: Sequence[LeaseId]
    ) -> Sequence[LeaseHeld | LeaseRefused]:
        return self._of(owner).renew_taken(leases, self._taker())

    async def acknowledge(
        self, owner: Owner, lease: LeaseId, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        return self._of(owner).acknowledge(lease, self._taker(), attempt)

    async def copy(self, pull: Pull) -> Copied:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.copy_pages, pull)

    def links(self) -> tuple[LinkUse, ...]:
        return ()

    def stop(self, request: RequestId, attempt: int) -> None:
        """A test that wants a copy to last holds it."""

    def _of(self, owner: Owner) -> TakenLeases:
        leases = self._owners.get(owner.incarnation)
        if leases is None:
            raise PeerError(f"owner {owner.worker} is gone")
        return leases


class Side:
    """A worker, its pages, and how it copies those of others."""

    def __init__(self, pair: "ExchangePair", name: str, **how) -> None:
        self.shadow = ShadowKv(PAGE_TOKENS)
        self.pages = ShadowPages(self.shadow)
        self.copy_gate = threading.Event()
        self.copy_gate.set()
        self.bad: set[int] = set()
        self._pair = pair
        self.path = LocalPullPath(
            lambda: self.worker.info.incarnation, pair.owners, self._copy, pair.threads
        )
        info = replace(INFO, id=WorkerId(name), incarnation=Incarnation(f"{name}-1"), kv=KV)
        decisions = scheduler()
        if "ttl_s" in how:
            decisions.leases.ttl_s = how.pop("ttl_s")
        self.worker = Worker(
            info,
            decisions,
            ScriptedEngine(SCRIPT, shadow=self.shadow),
            exchange=Exchange(pages=self.pages, path=self.path),
            **how,
        )
        self.reader = self.worker.events()
        self.events: list[Event] = []

    def _copy(self, pull: Pull) -> Copied:
        assert self.copy_gate.wait(60)
        source = self._pair.shadows[pull.offer.owner]
        good = []
        for number, one in enumerate(pull.pages):
            content = source.content(one.source.page)
            whole = hash(content) == one.source.checksum and number not in self.bad
            self.shadow.pull(one.target, content if whole else (-1,) * PAGE_TOKENS)
            good.append(whole)
        return Copied(tuple(good), "" if all(good) else "bad")

    async def until(self, kind: type[Event]):
        """The first event of that kind; all that came before are in `events`."""
        while not (found := [one for one in self.events if isinstance(one, kind)]):
            self.events += await asyncio.wait_for(anext(self.reader), 30)
        return found[0]


class ExchangePair:
    """`async with ExchangePair() as pair`: a prefill and a decode worker."""

    def __init__(self, clock: Clock | None = None, **how) -> None:
        self.threads = ThreadPoolExecutor(1)
        self.owners: dict = {}
        clocks = {"clock": clock or asyncio.get_running_loop().time}
        logs = how.pop("logs", ({}, {}))
        self.prefill = Side(self, "p", **clocks, **how, **logs[0])
        self.decode = Side(self, "d", **clocks, **logs[1])
        sides = (self.prefill, self.decode)
        self.shadows = {side.worker.info.id: side.shadow for side in sides}
        self.owners.update({side.worker.info.incarnation: side.worker.leases for side in sides})

    async def __aenter__(self) -> "ExchangePair":
        self.prefill.worker.start()
        self.decode.worker.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for side in (self.prefill, self.decode):
            side.pages.gate.set()
            side.copy_gate.set()
            await side.worker.close()
        self.threads.shutdown()

    async def offered(self, request: Request) -> Offer:
        """Have the prompt computed."""
        await self.prefill.worker.add(request, Stage.PREFILL)
        return await self.prefill.until(Offer)

    async def adopted(self, request: Request) -> Offer:
        """Have the prompt computed, and let the other worker go on with it."""
        offer = await self.offered(request)
        taker = self.decode.worker.info.incarnation
        granted = await self.prefill.worker.grant(offer.lease, taker, request.attempt)
        assert granted == LeaseHeld(offer.lease)
        await self.decode.worker.adopt(self.continued(request), offer)
        return offer

    def continued(self, request: Request) -> Request:
        """The request as the gateway hands it on."""
        tokens = self.tokens(request)
        ends = [one.sequence for one in self.prefill.events if isinstance(one, SequenceEnded)]
        return replace(request, resumed=tuple(map(tuple, tokens)), done=tuple(sorted(ends)))

    def tokens(self, request: Request) -> list[list[int]]:
        tokens: list[list[int]] = [[] for _ in range(request.sampling.n)]
        for event in (*self.prefill.events, *self.decode.events):
            if isinstance(event, TokenGenerated) and event.request == request.id:
                assert event.index == len(tokens[event.sequence])
                tokens[event.sequence].append(event.token)
        return tokens

    async def finish(self, request: Request) -> Pulled:
        """Read on until all has ended, and compare with what must come out."""
        open_sequences = request.sampling.n - len(self.continued(request).done)
        while sum(isinstance(one, SequenceEnded) for one in self.decode.events) < open_sequences:
            self.decode.events += await asyncio.wait_for(anext(self.decode.reader), 30)
        wanted = request.sampling.max_tokens or 0
        assert self.tokens(request) == [
            [SCRIPT(request, sequence, index) for index in range(wanted)]
            for sequence in range(request.sampling.n)
        ]
        return await self.decode.until(Pulled)

    async def rest(self) -> None:
        """Both drain, and nothing is left."""
        for side in (self.prefill, self.decode):
            await asyncio.wait_for(side.worker.drain(), 30)
            view = side.worker.view()
            assert (view.running, view.waiting, view.pulling, view.leases) == (0, 0, 0, 0)
            assert view.held_pages == 0


ID = RequestId("r")
