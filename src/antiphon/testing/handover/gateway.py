"""The gateway of the model: the real request book, and clients who check what they get."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from antiphon.core.requests import RequestBook
from antiphon.core.token_runs import each_token
from antiphon.testing.laws import LawBroken
from antiphon.types import (
    Abort,
    Adopt,
    Command,
    Deliver,
    DeliverRun,
    Dispatch,
    Drained,
    EndSequence,
    Grant,
    Health,
    HealthChanged,
    Outcome,
    Release,
    Renew,
    Request,
    RequestId,
    Seconds,
    Settle,
    TokenGenerated,
    WorkerId,
)

from .facts import OUTPUT_TOKENS, GrantTo, StreamEnded, incarnation_of, token_of

Send: TypeAlias = Callable[[WorkerId, object], None]


@dataclass(slots=True, eq=False)
class _Client:
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    settled: bool = False


@dataclass(slots=True, eq=False)
class HandoverGateway:
    """What the gateway and its clients have."""

    book: RequestBook
    clients: dict[RequestId, _Client]

    @property
    def settled(self) -> bool:
        """All requests are over for their clients."""
        return all(client.settled for client in self.clients.values())

    @property
    def idle(self) -> bool:
        """The book keeps nothing."""
        return not len(self.book) and not self.book.offers and not sum(self.book.held)

    def hear(self, message: object, now: Seconds, send: Send) -> None:
        """A worker's word arrives, or its end."""
        if isinstance(message, StreamEnded):
            lost = HealthChanged(message.worker, Health.LOST)
            self.order(self.book.observe(lost, now), send)
        else:
            self.order(self.book.heard(message, now), send)  # pyright: ignore[reportArgumentType]

    def due(self, now: Seconds, send: Send) -> None:
        """Time has passed."""
        self.order(self.book.due(now), send)

    def order(self, commands: Iterable[Command], send: Send) -> None:
        """Do what the book says."""
        for command in commands:
            match command:
                case Dispatch(worker=worker) | Adopt(worker=worker):
                    self._check_resumed(command.request)
                    send(worker, command)
                case Abort(worker=worker):
                    send(worker, command)
                case Grant(request=request, attempt=attempt, lease=lease, taker=taker):
                    send(command.owner, GrantTo(request, attempt, lease, incarnation_of(taker)))
                case Renew(owner=owner) | Release(owner=owner):
                    send(owner, command)
                case Deliver(said) | DeliverRun(said):
                    for token in each_token(said):
                        self._deliver(token)
                case EndSequence():
                    self._end(command)
                case Settle():
                    self._settle(command)
                case Drained():
                    pass

    def _deliver(self, token: TokenGenerated) -> None:
        client = self.clients[token.request]
        due = len(client.tokens)
        if client.ended or token.index != due or token.token != token_of(token.request, due):
            raise LawBroken(f"I14: {token} comes after {client.tokens}")
        client.tokens.append(token.token)

    def _check_resumed(self, request: Request) -> None:
        has = self.clients[request.id].tokens
        if list(request.resumed[0] if request.resumed else ()) != has:
            raise LawBroken(f"I14: {request.id} goes on from {request.resumed}, {has} is there")

    def _end(self, end: EndSequence) -> None:
        client = self.clients[end.request]
        if client.ended or len(client.tokens) != OUTPUT_TOKENS:
            raise LawBroken(f"I20: {end} comes after {client.tokens}")
        client.ended = True

    def _settle(self, settle: Settle) -> None:
        record = settle.record
        client = self.clients[record.request]
        if client.settled:
            raise LawBroken(f"I1: {record.request} is settled twice")
        if record.outcome is not Outcome.FINISHED:
            raise LawBroken(f"I21: {record.request} is {record.outcome}: {record.message}")
        client.settled = True


def new_gateway(book: RequestBook, requests: Iterable[RequestId]) -> HandoverGateway:
    """A gateway that has just started, and whose clients are about to call."""
    return HandoverGateway(book, {request: _Client() for request in requests})
