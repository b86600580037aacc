"""What a gateway's messages do at a worker: each becomes a call of its link, and an answer."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from antiphon.types import (
    Abort,
    Aborted,
    Admitted,
    Adopt,
    Dispatch,
    GrantTo,
    LeaseHeld,
    LeaseRefused,
    Rejected,
    Release,
    Renew,
    Request,
    RoleChanged,
    Seconds,
)
from antiphon.wire import Frame, FrameError, Kind, decode, from_durations

from .life import Life
from .worker_link import WorkerLink

Answer: TypeAlias = tuple[Kind, object]


class WorkerCalls:
    """Keeps the book of the worker's present life: what came over its stream and has not ended."""

    def __init__(self, worker: WorkerLink, clock: Callable[[], Seconds]) -> None:
        self.life = Life()
        self._worker = worker
        self._clock = clock
        self._handlers: dict[int, Callable[[Any], Awaitable[Answer]]] = {
            Kind.DISPATCH: self._add,
            Kind.ADOPT: self._adopt,
            Kind.ABORT: self._abort,
            Kind.GRANT: self._grant,
            Kind.RENEW: self._renew,
            Kind.RELEASE: self._release,
            Kind.SET_ROLE: self._set_role,
        }

    def answer(self, frame: Frame) -> Callable[[], Awaitable[Answer]]:
        """What executes this message. Raises `FrameError` if it is none, or for another worker."""
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise FrameError(f"a message of kind {frame.kind} is too much here")
        return partial(handler, self._localized(decode(frame)))

    async def end_life(self) -> None:
        """Abort what is left of this life, and begin the next one's book."""
        for id, attempt in self.life.runs:
            await self._worker.abort(id, attempt)
        self.life = Life()

    def _localized(self, message: object) -> object:
        """The message with times on this clock. Raises `FrameError` if it is for another."""
        match message:
            case Dispatch() | Adopt():
                receiver = message.worker
                request = from_durations(message.request, self._clock())
                message = replace(message, request=request)
            case Abort() | RoleChanged():
                receiver = message.worker
            case Renew() | Release():
                receiver = message.owner
            case _:
                return message
        if receiver != self._worker.info.id:
            raise FrameError(f"a message for {receiver!r:.80} came to {self._worker.info.id}")
        return message

    async def _add(self, message: Dispatch) -> Answer:
        request = message.request
        return await self._take(request, self._worker.add(request, message.stage, message.fetch))

    async def _adopt(self, message: Adopt) -> Answer:
        request = message.request
        return await self._take(request, self._worker.adopt(request, message.offer))

    async def _take(self, request: Request, asked: Awaitable[Admitted | Rejected]) -> Answer:
        """Noted before it is asked: the first event may come before the answer is there."""
        before = self.life.taking(request)
        answer = await asked
        if isinstance(answer, Rejected):
            self.life.not_taken(request, before)
            return Kind.REJECTED, answer
        return Kind.ADMITTED, answer

    async def _abort(self, message: Abort) -> Answer:
        answer = await self._worker.abort(message.request, message.attempt, message.sequence)
        if isinstance(answer, Aborted):
            self.life.aborted(message.request, message.attempt, len(answer.sequences))
            return Kind.ABORTED, answer
        return Kind.UNKNOWN, answer

    async def _grant(self, message: GrantTo) -> Answer:
        answer = await self._worker.grant(message.lease, message.taker, message.attempt)
        return _lease_answer(answer)

    async def _renew(self, message: Renew) -> Answer:
        await self._worker.renew(message.leases)
        return Kind.DONE, None

    async def _release(self, message: Release) -> Answer:
        await self._worker.release(message.lease)
        return Kind.DONE, None

    async def _set_role(self, message: RoleChanged) -> Answer:
        await self._worker.set_role(message.role)
        return Kind.DONE, None


def _lease_answer(answer: LeaseHeld | LeaseRefused) -> Answer:
    if isinstance(answer, LeaseHeld):
        return Kind.LEASE_HELD, answer
    return Kind.LEASE_REFUSED, answer
