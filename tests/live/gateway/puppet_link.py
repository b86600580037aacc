"""A worker whose every word the test speaks: for timing and failures that a real one rarely has."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from antiphon.errors import PeerError
from antiphon.types import (
    Aborted,
    Admitted,
    Event,
    FinishReason,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Logprobs,
    ModelInfo,
    Offer,
    Rejected,
    RejectReason,
    Request,
    RequestId,
    Role,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    Unknown,
    WorkerId,
    WorkerInfo,
    WorkerView,
)


def worker_info(
    *,
    vocab_size: int,
    eos: tuple[int, ...],
    max_model_len: int = 8192,
    name: str = "w0",
    life: str = "i0",
    role: Role = Role.MIXED,
) -> WorkerInfo:
    model = ModelInfo(
        name="smollm2-135m",
        identity=b"\x01" * 32,
        numerics="script-v1",
        vocab_size=vocab_size,
        context_len=max_model_len,
        eos_token_ids=eos,
        kv_bytes_per_token=1,
    )
    return WorkerInfo(
        id=WorkerId(name),
        incarnation=Incarnation(life),
        model=model,
        max_model_len=max_model_len,
        role=role,
        kv=KV,
    )


KV = KvShape(layout="rows", page_tokens=16, block_tokens=64, page_bytes=64, pages=10)


class PuppetLink:
    """Implements `WorkerLink`. The test reads `requests` and `aborts`, and calls `say…`."""

    def __init__(self, info: WorkerInfo) -> None:
        self._info = info
        self.stages: list[Stage] = []
        self.adopted: list[tuple[Request, Offer]] = []
        self.grants: list[tuple[LeaseId, Incarnation, int]] = []
        self.refuse_grant: LeaseRefusal | None = None
        self.renewed: list[LeaseId] = []
        self.released: list[LeaseId] = []
        self._events: asyncio.Queue[Sequence[Event] | None] = asyncio.Queue()
        self.requests: list[Request] = []
        self.aborts: list[tuple[RequestId, int | None]] = []
        self.reject: RejectReason | None = None
        self.retry_after_s: float | None = None
        self.refuse_from: int | None = None
        """Refuse every request after this many."""
        self.script: Callable[[Request, int], Sequence[int]] | None = None
        """If set, every request is answered at once: (request, sequence) → its tokens."""
        self.changed = asyncio.Condition()

    @property
    def info(self) -> WorkerInfo:
        return self._info

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        self.stages.append(stage)
        return await self._take(request)

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        self.adopted.append((request, offer))
        return await self._take(request)

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        self.grants.append((lease, taker, attempt))
        if self.refuse_grant is not None:
            return LeaseRefused(lease, self.refuse_grant)
        return LeaseHeld(lease)

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        self.renewed += leases
        async with self.changed:
            self.changed.notify_all()

    async def release(self, lease: LeaseId) -> None:
        self.released.append(lease)
        async with self.changed:
            self.changed.notify_all()

    async def set_role(self, role: Role) -> None:
        self._info = replace(self._info, role=role)

    async def _take(self, request: Request) -> Admitted | Rejected:
        self.requests.append(request)
        number = len(self.requests)
        async with self.changed:
            self.changed.notify_all()
        refusal = self.reject
        if self.refuse_from is not None and number > self.refuse_from:
            refusal = RejectReason.QUEUE_FULL
        if refusal is not None:
            return Rejected(
                request=request.id,
                reason=refusal,
                message="the puppet refuses",
                retry_after_s=self.retry_after_s,
            )
        if self.script is not None:
            self._play(request, self.script)
        return Admitted(request=request.id)

    def _play(self, request: Request, script: Callable[[Request, int], Sequence[int]]) -> None:
        self.start(request)
        for sequence in range(request.sampling.n):
            tokens = list(script(request, sequence))
            limit = request.sampling.max_tokens or 0
            reason = FinishReason.LENGTH if len(tokens) > limit else FinishReason.STOP
            self.tokens(request, tokens[:limit], sequence=sequence)
            self.end(request, reason, sequence=sequence)

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        self.aborts.append((id, sequence))
        async with self.changed:
            self.changed.notify_all()
        return Unknown(request=id)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while (batch := await self._events.get()) is not None:
            yield batch
            self._events.task_done()
        raise PeerError("the puppet's strings are cut")

    def view(self) -> WorkerView:
        return WorkerView(
            running=1,
            waiting=2,
            free_pages=5,
            held_pages=3,
            cached_pages=2,
            total_pages=10,
            peak_pages=4,
            prefix_queried_tokens_total=100,
            prefix_hit_tokens_total=40,
            preemptions_total=0,
            steps_total=7,
            computed_tokens_total=60,
        )

    async def read(self) -> None:
        """Return when the gateway has taken in everything that was said."""
        await asyncio.wait_for(self._events.join(), 10)

    async def until(self, condition) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(condition), 10)

    async def request(self, number: int = 0) -> Request:
        await self.until(lambda: len(self.requests) > number)
        return self.requests[number]

    def say(self, *events: Event) -> None:
        self._events.put_nowait(events)

    def start(self, request: Request, cached: int = 0) -> None:
        self.say(
            Started(request=request.id, attempt=request.attempt, cached_tokens=cached, queued_s=0.0)
        )

    def tokens(
        self,
        request: Request,
        tokens: Sequence[int],
        *,
        sequence: int = 0,
        first: int = 0,
        logprobs: Sequence[Logprobs | None] | None = None,
    ) -> None:
        """All in one batch, as if one step had made them."""
        self.say(
            *(
                TokenGenerated(
                    request=request.id,
                    attempt=request.attempt,
                    sequence=sequence,
                    index=first + offset,
                    token=token,
                    logprobs=logprobs[offset] if logprobs else None,
                )
                for offset, token in enumerate(tokens)
            )
        )

    def end(
        self,
        request: Request,
        reason: FinishReason = FinishReason.STOP,
        *,
        sequence: int = 0,
        message: str = "",
    ) -> None:
        self.say(
            SequenceEnded(
                request=request.id,
                attempt=request.attempt,
                sequence=sequence,
                reason=reason,
                message=message,
            )
        )

    def die(self) -> None:
        self._events.put_nowait(None)
