"""A gateway in virtual time: executes what the request book decides, over virtual streams."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from antiphon.core.membership import JoinRefused, Membership
from antiphon.core.requests import RequestBook
from antiphon.core.token_runs import each_token
from antiphon.types import (
    Abort,
    Adopt,
    ClusterConfig,
    Command,
    Deliver,
    DeliverRun,
    Dispatch,
    Drained,
    EndSequence,
    FinishReason,
    Grant,
    Health,
    HealthChanged,
    Incarnation,
    KvDump,
    KvEvents,
    KvReplay,
    Release,
    Renew,
    Request,
    RequestId,
    Seconds,
    SequenceKey,
    Settle,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
)

from .cluster_log import Arrived, ClusterLog, GivenUp, LifeBegan, LifeEnded, Note, Turned
from .cluster_messages import (
    ClusterMessage,
    GrantTo,
    Heartbeat,
    Join,
    ToGateway,
    adopted,
    boundary_of,
    dispatched,
)
from .network import Network
from .stream import End
from .virtual_process import VirtualProcess

HearKv: TypeAlias = Callable[[WorkerId, Incarnation, KvDump | KvEvents, Seconds], KvReplay | None]
"""`Router.heard_kv` of the gateway's present life."""


@dataclass(frozen=True, slots=True)
class _Link:
    end: End
    info: WorkerInfo


class ClusterGateway:
    """The gateway's process through all its lives, as its clients see it.

    `stops[key]` is the index of the token in which that sequence's text meets a stop string.
    """

    def __init__(
        self,
        process: VirtualProcess,
        network: Network,
        config: ClusterConfig,
        *,
        make_book: Callable[[], RequestBook],
        hear_kv: HearKv,
        log: ClusterLog,
        stops: Mapping[SequenceKey, int],
    ) -> None:
        self.process = process
        self.network = network
        self.config = config
        self.log = log
        self.stops = stops
        self.life: GatewayLife | None = None
        self.hear_kv = hear_kv
        self._make_book = make_book
        process.on_start = self._begin

    def _begin(self) -> None:
        self.note(LifeBegan(self.process.incarnation))
        self.process.at_crash(lambda: self.note(LifeEnded(self.process.incarnation)))
        self.life = GatewayLife(self, self._make_book())

    def note(self, what: object) -> None:
        """Into the log, with the time of the world."""
        self.log.note(self.network.loop.now, self.process.name, what)

    def submit(self, request: Request, patience_s: Seconds | None) -> None:
        """A client calls; its request's deadline is `patience_s` after it is read."""
        if not self.process.alive:
            self.note(Turned(request))
            return
        self.note(Arrived(request))
        life = self.life
        assert life is not None
        self.process.deliver(lambda: life.submit(request, patience_s))

    def cancel(self, request: RequestId, sequence: int | None) -> None:
        """A client gives up. No effect if nobody is there to hear it."""
        life = self.life
        if life is not None:
            self.process.deliver(lambda: life.cancel(request, sequence, FinishReason.ABORTED))

    def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        """An operator has a worker emptied. No effect if nobody is there to hear it, and forgotten
        at the end of this life: say it again to the next one."""
        life = self.life
        if life is not None:
            self.process.deliver(lambda: life.drain(worker, timeout_s))


class GatewayLife:
    """One life of a gateway: what it forgets when it dies."""

    def __init__(self, gateway: ClusterGateway, book: RequestBook) -> None:
        self.book = book
        self.membership = Membership(
            heartbeat_s=gateway.config.heartbeat_s, lost_after_s=gateway.config.lost_after_s
        )
        self._gateway = gateway
        self._process = gateway.process
        self._number = gateway.process.lives
        self._links: dict[WorkerId, _Link] = {}
        self._awake_at: Seconds | None = None
        gateway.network.listen(gateway.process, self._accept)
        self._beat()

    # ── clients ──────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request, patience_s: Seconds | None) -> None:
        """Take a request into the book."""
        now = self._process.now
        deadline = None if patience_s is None else now + patience_s
        taken = replace(request, deadline=deadline, arrived_at=now)
        self._run(self.book.start(taken, now))

    def cancel(self, request: RequestId, sequence: int | None, reason: FinishReason) -> None:
        """End a request, or one sequence of it."""
        self._gateway.note(GivenUp(request, sequence, reason))
        self._run(self.book.cancel(request, self._process.now, sequence, reason))

    def drain(self, worker: WorkerId, timeout_s: Seconds) -> None:
        """Empty a worker. One that is not there is empty already: the book says so."""
        now = self._process.now
        self._gateway.note(Note(f"drain {worker}"))
        self._run(self.book.drain(worker, now + timeout_s, now))

    # ── workers ──────────────────────────────────────────────────────────────────────────────

    def _accept(self, end: End) -> None:
        end.heard = lambda message: self._first_word(end, message)

    def _first_word(self, end: End, message: ToGateway) -> None:
        if not isinstance(message, Join):
            return  # of a life that is not here: only a hostile link says it
        info, now = message.info, self._process.now
        answer = self.membership.joined(info.id, info.incarnation, now)
        if isinstance(answer, JoinRefused):
            self._gateway.note(Note(f"{info.incarnation} is refused: {answer.reason}"))
            end.close()
            return
        for change in answer:
            self._changed(change)
        self._links[info.id] = _Link(end, info)
        end.heard = lambda message: self._hear(info, message)
        end.closed = lambda: self._closed(info)
        self._send(info.id, Heartbeat())
        self._run(self.book.observe(WorkerJoined(info), now))

    def _hear(self, info: WorkerInfo, message: ToGateway) -> None:
        now = self._process.now
        if not self.membership.heard(info.id, info.incarnation, now):
            return
        match message:
            case Heartbeat(view):
                if view is not None:
                    self._run(self.book.observe(WorkerReported(info.id, view), now))
            case KvDump() | KvEvents():
                wish = self._gateway.hear_kv(info.id, info.incarnation, message, now)
                if wish is not None:
                    self._send(info.id, wish)
            case Join():
                pass  # it has joined: only a hostile link says it twice
            case fact:
                self._run(self.book.heard(fact, now))

    def _closed(self, info: WorkerInfo) -> None:
        for change in self.membership.left(info.id, info.incarnation, self._process.now):
            self._changed(change)

    def _changed(self, change: HealthChanged) -> None:
        self._gateway.note(change)
        if change.health is Health.LOST and (link := self._links.pop(change.worker, None)):
            link.end.close()
        self._run(self.book.observe(change, self._process.now))

    def incarnation(self, worker: WorkerId) -> Incarnation | None:
        """The present life of a worker; None: it is not there."""
        link = self._links.get(worker)
        return None if link is None else link.info.incarnation

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def _beat(self) -> None:
        beat = Heartbeat()
        for worker in list(self._links):
            self._send(worker, beat)
        self._process.call_at(self._process.now + self._gateway.config.heartbeat_s, self._beat)

    def _wake(self) -> None:
        # With every word of every worker: no generator.
        at, other = self.book.next_deadline(), self.membership.next_deadline()
        if at is None or (other is not None and other < at):
            at = other
        if at is None:
            return
        if self._awake_at is None or at < self._awake_at:
            self._awake_at = at
            self._process.call_at(at, lambda: self._turn(at))

    def _turn(self, at: Seconds) -> None:
        if self._awake_at != at:
            return
        self._awake_at = None
        now = self._process.now
        for change in self.membership.due(now):
            self._changed(change)
        self._run(self.book.due(now))

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def _run(self, commands: Sequence[Command]) -> None:
        stops: list[SequenceKey] = []
        for command in commands:
            if not (self._process.alive and self._process.lives == self._number):
                return  # it died in the midst of this
            self._gateway.note(command)
            self._execute(command)
            stops += self._stopped(command)
        for key in stops:
            self.cancel(key.request, key.sequence, FinishReason.STOP)
        self._wake()

    def _stopped(self, command: Command) -> Sequence[SequenceKey]:
        """Whose text meets its stop string with what is delivered."""
        if not self._gateway.stops:
            return ()
        match command:
            case Deliver(said) | DeliverRun(said):
                key = SequenceKey(said.request, said.sequence)
                stop = self._gateway.stops.get(key)
                met = stop is not None and any(one.index == stop for one in each_token(said))
                return (key,) if met else ()
            case _:
                return ()

    def _execute(self, command: Command) -> None:
        now = self._process.now
        match command:
            case Deliver() | DeliverRun() | EndSequence() | Settle() | Drained():
                pass  # the log is the client; most are of these
            case Dispatch(worker=worker):
                self._send(worker, dispatched(command, now))
            case Adopt(worker=worker):
                self._send(worker, adopted(command, now))
            case Grant(request=request, attempt=attempt, lease=lease, taker=taker):
                if (incarnation := self.incarnation(taker)) is not None:
                    self._send(command.owner, GrantTo(request, attempt, lease, incarnation))
            case Renew(owner=owner) | Release(owner=owner):
                self._send(owner, command)
            case Abort(worker=worker):
                self._send(worker, command)
            case _:
                assert_never(command)

    def _send(self, worker: WorkerId, message: ClusterMessage) -> None:
        """To a worker that was lost a moment ago: nothing, the book will hear of that."""
        if (link := self._links.get(worker)) is not None:
            link.end.send(message, boundary_of(message))
