"""The links to all workers: who is there, how each one does, and what they say.

    link ── events ──► pump ──► `on_events`
         ── KV news ──► pump ──► `on_kv_news`, which may want some of it again
         ── views, signs of life ──► watch ──► Membership ──► `on_change` (WorkerJoined, …)

A worker's stream ends, or it is silent for too long, or it leaves a call unanswered: it is lost,
and nothing that its link still says is taken in. That is never the gateway's own failure.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, runtime_checkable

from antiphon.core.membership import Membership
from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvNews, KvSource
from antiphon.live.view_details import without_details
from antiphon.live.worker_link import WorkerLink
from antiphon.types import (
    ClusterConfig,
    Event,
    FleetEvent,
    Health,
    HealthChanged,
    JoinRefused,
    KvReplay,
    Member,
    Role,
    RoleChanged,
    Seconds,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)

_log = logging.getLogger(__name__)


@runtime_checkable
class Heard(Protocol):
    """A link to another process knows when that was heard last; one in this process lives."""

    @property
    def heard_at(self) -> Seconds:
        """On this process's clock."""
        ...


@runtime_checkable
class Carried(Protocol):
    """A link to another process knows what carries it."""

    @property
    def transport(self) -> str:
        """unix or tls."""
        ...


def _transport(link: WorkerLink) -> str:
    return link.transport if isinstance(link, Carried) else ""


class _Joined:
    """A link, the tasks that read it, and what was last told of it."""

    def __init__(self, link: WorkerLink, now: Seconds) -> None:
        self.link = link
        self.pumps: list[asyncio.Task[None]] = []
        self.heard_at = now
        self.leaving = False
        self.reported: WorkerView | None = None

    def stop(self) -> None:
        """Read it no more."""
        for pump in self.pumps:
            pump.cancel()


class Fleet:
    """The workers of one gateway. All methods run on its event loop, and none waits but `run`.

    `on_lost` is called for each link that is given up, with the reason: its owner closes it.
    `on_kv_news` gets what a worker says of its KV, and returns what it wants to hear again.
    `on_failure` gets what no peer may cause: a broken law in this process.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Callable[[], Seconds],
        on_events: Callable[[WorkerInfo, Sequence[Event]], None],
        on_change: Callable[[FleetEvent], None],
        on_failure: Callable[[BaseException], None],
        on_lost: Callable[[WorkerLink, str], None] = lambda link, reason: None,
        on_kv_news: Callable[[WorkerInfo, KvNews], KvReplay | None] = lambda worker, news: None,
    ) -> None:
        self._clock = clock
        self._on_events = on_events
        self._on_change = on_change
        self._on_failure = on_failure
        self._on_lost = on_lost
        self._on_kv_news = on_kv_news
        self._report_s = config.heartbeat_s
        self._membership = Membership(
            heartbeat_s=config.heartbeat_s, lost_after_s=config.lost_after_s
        )
        self._joined: dict[WorkerId, _Joined] = {}
        self._news = asyncio.Event()

    def link(self, worker: WorkerId) -> WorkerLink | None:
        """None: it is not there."""
        joined = self._joined.get(worker)
        return None if joined is None else joined.link

    def members(self) -> Sequence[Member]:
        """All that have joined and are not lost, by id."""
        return [
            Member(link.info, self._membership.health(worker), link.view(), _transport(link))
            for worker, link in ((name, self._joined[name].link) for name in sorted(self._joined))
        ]

    @property
    def serves(self) -> bool:
        """At least one worker takes requests."""
        return any(
            self._membership.health(worker) in (Health.JOINED, Health.SUSPECT)
            for worker in self._joined
        )

    # ── coming and going ─────────────────────────────────────────────────────────────────────

    def join(self, link: WorkerLink) -> JoinRefused | None:
        """A worker has joined; a former life of it is lost. Returns why it may not, if so."""
        info, now = link.info, self._clock()
        answer = self._membership.joined(info.id, info.incarnation, now)
        if isinstance(answer, JoinRefused):
            return answer
        for change in answer:
            self._lost(change, "it has joined anew")
        joined = self._joined[info.id] = _Joined(link, now)
        self._on_change(WorkerJoined(info))
        self._report(info.id, joined)
        self._pump(joined, self._read(link), f"events of {info.id}")
        if isinstance(link, KvSource):
            self._pump(joined, self._read_kv(info, link), f"KV news of {info.id}")
        self._announce()
        return None

    def lose(self, link: WorkerLink, reason: str) -> None:
        """The worker can't be relied on any more. No effect on a link that is lost already."""
        for change in self._membership.left(link.info.id, link.info.incarnation, self._clock()):
            self._lost(change, reason)

    def drain(self, worker: WorkerId, on: bool) -> None:
        """It gets nothing new from now on, or (`on=False`) again."""
        for change in self._membership.drain(worker, on):
            self._on_change(change)

    def leaves(self, worker: WorkerId) -> None:
        """It has been drained and is about to end: that is nothing to warn of."""
        if (joined := self._joined.get(worker)) is not None:
            joined.leaving = True

    async def set_role(self, worker: WorkerId, role: Role) -> None:
        """Give a worker another role. Raises `PeerError` if it is not there, or does not answer:
        then it is lost, for nobody knows which role it has."""
        link = self.link(worker)
        if link is None:
            raise PeerError(f"worker {worker} is not there")
        try:
            await link.set_role(role)
        except PeerError as error:
            self.lose(link, f"a call was not answered: {error}")
            raise
        if self.link(worker) is not link:
            raise PeerError(f"worker {worker} was lost")
        self._on_change(RoleChanged(worker, role))
        self._announce()

    async def changed(self) -> None:
        """Return when a worker has joined or was lost."""
        await self._news.wait()

    async def run(self) -> None:
        """Watch health and loads until cancelled; then all links are let go."""
        try:
            while True:
                await asyncio.sleep(self._report_s)
                self._watch()
        finally:
            for joined in self._joined.values():
                joined.stop()

    def has(self, role: Role) -> bool:
        """Is there a worker of this role?"""
        return any(joined.link.info.role is role for joined in self._joined.values())

    def _watch(self) -> None:
        now = self._clock()
        for worker, joined in list(self._joined.items()):
            link = joined.link
            heard_at = link.heard_at if isinstance(link, Heard) else now
            if heard_at > joined.heard_at:
                joined.heard_at = heard_at
                self._membership.heard(worker, link.info.incarnation, heard_at)
            self._report(worker, joined)
        for change in self._membership.due(now):
            if change.health is Health.LOST:
                self._lost(change, "it was silent for too long")
            else:
                self._on_change(change)

    def _report(self, worker: WorkerId, joined: _Joined) -> None:
        view = without_details(joined.link.view())
        if view != joined.reported:
            joined.reported = view
            self._on_change(WorkerReported(worker, view))

    def _lost(self, change: HealthChanged, reason: str) -> None:
        joined = self._joined.pop(change.worker)
        joined.stop()
        level = logging.INFO if joined.leaving else logging.WARNING
        _log.log(level, "worker %s is lost: %s", change.worker, reason)
        self._on_lost(joined.link, reason)
        self._on_change(change)
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # ── what they say ────────────────────────────────────────────────────────────────────────

    async def _read(self, link: WorkerLink) -> None:
        reason = "its events have ended"
        try:
            async for events in link.events():
                self._on_events(link.info, events)
        except PeerError as error:
            reason = str(error)
        self.lose(link, reason)

    async def _read_kv(self, worker: WorkerInfo, source: KvSource) -> None:
        """Until the stream is over, which is for the reader of events to say."""
        with contextlib.suppress(PeerError):
            async for news in source.kv_news():
                wish = self._on_kv_news(worker, news)
                if wish is not None:
                    source.kv_replay(wish)
                await asyncio.sleep(0)  # a dump has many parts, and others want to be served

    def _pump(self, joined: _Joined, reading: Coroutine[Any, Any, None], name: str) -> None:
        pump = asyncio.create_task(reading, name=name)
        pump.add_done_callback(self._read_to_its_end)
        joined.pumps.append(pump)

    def _read_to_its_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)
