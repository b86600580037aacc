"""The side of a virtual worker that takes what others offer: executes what its puller decides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from antiphon.core.faults import Boundary
from antiphon.core.handover import (
    Acknowledge,
    Copy,
    Owner,
    PullCommand,
    PullEnded,
    Puller,
    RenewTaken,
    StopCopy,
    Take,
)
from antiphon.types import Incarnation, OfferedPage, PageId, Pull, RequestId, Seconds, WorkerId

from .cluster_log import BadCopy
from .cluster_messages import Answer, Ask, Mapped, ToTaker, boundary_of
from .shadow_kv import PageContent, PageCopy, ShadowKv
from .stream import End
from .worker_host import WorkerHost


@dataclass(slots=True, eq=False)
class _Link:
    """To one worker that offers. Mapped once it has said who it is."""

    end: End | None = None
    incarnation: Incarnation | None = None
    memory: ShadowKv | None = None
    unsaid: list[tuple[Owner, Ask]] = field(default_factory=list)
    """Waits for the stream to open."""


@dataclass(slots=True, eq=False)
class Copying:
    """One pull under way."""

    pull: Pull
    memory: ShadowKv
    """Mapped, so it can be read even when its owner is dead."""
    good: list[bool] = field(default_factory=list)
    unwanted: bool = False


class PageTaker:
    """Dials owners, copies page by page, and tells the scheduler how each pull ended."""

    def __init__(self, life: WorkerHost) -> None:
        cluster = life.setup.cluster
        self._life = life
        self._puller = Puller(answer_s=cluster.lost_after_s, margin_s=cluster.lease_ttl_s / 10)
        self._links: dict[WorkerId, _Link] = {}
        self._copying: dict[tuple[RequestId, int], Copying] = {}
        self._awake_at: Seconds | None = None

    def __len__(self) -> int:
        """Pulls that have not ended."""
        return len(self._puller)

    def begin(self, pulls: Iterable[Pull]) -> None:
        """The scheduler has room for these."""
        for pull in pulls:
            self._run(self._puller.begin(pull, self._life.now))

    def cancel(self, request: RequestId, attempt: int) -> None:
        """The request has ended here."""
        self._run(self._puller.cancel(request, attempt, self._life.now))

    def end_all(self) -> None:
        """This incarnation, under which leases were taken, is over. Its requests were aborted."""
        links, self._links = self._links, {}
        for link in links.values():
            if link.end is not None:
                link.end.close()

    def take_page(self, copied: PageCopy, source: OfferedPage) -> PageContent | None:
        """What was copied from another's page; None: it is not what was offered."""
        return copied.verified(source)

    def put_page(self, target: PageId, content: PageContent) -> None:
        """Into a page of our own."""
        self._life.memory.pull(target, content)

    # ── the puller's commands ────────────────────────────────────────────────────────────────

    def _run(self, commands: Sequence[PullCommand]) -> None:
        for command in commands:
            match command:
                case Take() | RenewTaken() | Acknowledge():
                    self._ask(command.owner, Ask(command, self._life.incarnation))
                case Copy(pull):
                    self._begin_copy(pull)
                case StopCopy(request=request, attempt=attempt):
                    self._copying[request, attempt].unwanted = True
                case PullEnded():
                    self._ended(command)
                case _:
                    assert_never(command)
        self._wake()

    def _ended(self, end: PullEnded) -> None:
        life = self._life
        life.say(
            life.scheduler.pulled(
                end.request, end.attempt, end.good, life.now, end.problem, end.seconds
            )
        )
        life.wake()

    def _wake(self) -> None:
        at = self._puller.next_deadline()
        if at is not None and (self._awake_at is None or at < self._awake_at):
            self._awake_at = at
            self._life.process.call_at(at, lambda: self._turn(at))

    def _turn(self, at: Seconds) -> None:
        if self._awake_at == at:
            self._awake_at = None
            self._run(self._puller.due(self._life.now))

    # ── copying ──────────────────────────────────────────────────────────────────────────────

    def _begin_copy(self, pull: Pull) -> None:
        link = self._links.get(pull.offer.owner)
        assert link is not None
        assert link.memory is not None
        copying = Copying(pull, link.memory)
        self._copying[pull.request, pull.attempt] = copying
        self.next_page(copying)

    def next_page(self, copying: Copying) -> None:
        """Go on with a pull, or end it."""
        life = self._life
        if copying.unwanted or len(copying.good) == len(copying.pull.targets):
            self.end_copy(copying)
            return
        took_s = life.setup.page_pull_s * life.process.slow_factor
        life.process.call_at(life.now + took_s, lambda: self._copy_page(copying))

    def _copy_page(self, copying: Copying) -> None:
        number = len(copying.good)
        source, target = copying.pull.sources[number], copying.pull.targets[number]
        owner, name = copying.pull.offer.owner, self._life.process.name
        damage = self._life.crossed(Boundary.READ, owner, name)
        if not self._life.process.alive:
            return  # it died in the midst of this
        if self._life.setup.far and not self._comes(copying):
            return
        copied = copying.memory.copy(source.page)
        content = self.take_page(copied.damaged(damage) if damage else copied, source)
        if content is None:
            self._life.note(BadCopy(source.page))
        else:
            self.put_page(target, content)
        copying.good.append(content is not None)
        self.next_page(copying)

    def _comes(self, copying: Copying) -> bool:
        """Whether a page comes over the network now. If not it is waited for, until nobody wants it
        any more; from an owner whose stream is over none will come."""
        life, owner = self._life, copying.pull.offer.owner
        link = self._links.get(owner)
        if link is None or link.memory is not copying.memory:
            self.end_copy(copying)
            return False
        if not life.network.parted(life.process.name, owner):
            return True
        life.process.call_at(life.now + life.setup.page_pull_s, lambda: self.next_page(copying))
        return False

    def end_copy(self, copying: Copying) -> None:
        """Say of each page of a pull whether it came."""
        pull = copying.pull
        del self._copying[pull.request, pull.attempt]
        missing = len(pull.targets) - len(copying.good)
        good = (*copying.good, *(False,) * missing)
        self._run(self._puller.copied(pull.request, pull.attempt, good, "", self._life.now))

    # ── streams to owners ────────────────────────────────────────────────────────────────────

    def _ask(self, owner: Owner, ask: Ask) -> None:
        """Say it on the stream to that life of the owner, or dial first if it is a `Take`."""
        link = self._links.get(owner.worker)
        if link is None and isinstance(ask.command, Take):
            link = self._links[owner.worker] = _Link()
            self._dial(owner.worker, link)
        if link is None:
            return  # an acknowledgement or renewal that nobody hears: the lease expires
        if link.end is None or link.incarnation is None:
            link.unsaid.append((owner, ask))
        elif link.incarnation == owner.incarnation:
            link.end.send(ask, boundary_of(ask))
        elif isinstance(ask.command, Take):
            self._lost(owner.incarnation)

    def _dial(self, worker: WorkerId, link: _Link) -> None:
        def opened(end: End) -> None:
            link.end = end
            end.heard = lambda message: self._hear(link, message)
            end.closed = lambda: self._closed(worker, link)

        self._life.network.dial(
            self._life.process, worker, opened, lambda: self._closed(worker, link)
        )

    def _hear(self, link: _Link, message: ToTaker) -> None:
        match message:
            case Mapped(incarnation, memory):
                self._map(link, incarnation, memory)
            case Answer(Take(request=request, attempt=attempt), (answer,)):
                self._run(self._puller.taken(request, attempt, answer, self._life.now))
            case Answer(RenewTaken(), answers):
                self._run(self._puller.renewed(answers, self._life.now))
            case Answer():
                pass  # to an acknowledgement: nobody waits for it

    def _map(self, link: _Link, incarnation: Incarnation, memory: ShadowKv) -> None:
        link.incarnation, link.memory = incarnation, memory
        unsaid, link.unsaid = link.unsaid, []
        for owner, ask in unsaid:
            self._ask(owner, ask)

    def _closed(self, worker: WorkerId, link: _Link) -> None:
        if self._links.get(worker) is link:
            del self._links[worker]
        gone = dict.fromkeys(owner.incarnation for owner, _ in link.unsaid)
        link.unsaid.clear()
        for incarnation in (*gone, *([link.incarnation] if link.incarnation else ())):
            self._lost(incarnation)

    def _lost(self, owner: Incarnation) -> None:
        self._run(self._puller.lost(owner, self._life.now))
