"""Workers whose model is a list of words: they say and keep what real ones do, and compute nothing.

    python benchmarks/support/scripted_workers.py FOLDER CORE ROLE...    join the gateway in FOLDER

A worker takes a step every `STEP_S` while it has something to do, and then every request that runs
gets a token. A prompt is computed in one step. Prefill workers offer pages as real ones do; who
adopts an offer says `Pulled` in the next step. Reports count what is really there.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from antiphon.live.loaded_text import LoadedText, load_text
from antiphon.live.socket_folder import gateway_socket
from antiphon.live.worker_port import WorkerPort
from antiphon.types import (
    Aborted,
    Admitted,
    Config,
    Event,
    FinishReason,
    Incarnation,
    KvShape,
    LeaseHeld,
    LeaseId,
    ModelInfo,
    Offer,
    OfferedPage,
    OfferedSequence,
    Pulled,
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

STEP_S = 0.004
WORDS = " the quick brown fox jumps over a lazy dog and then sleeps in the sun"
MAX_MODEL_LEN = 8192
KV = KvShape(
    layout="scripted", page_tokens=16, block_tokens=64, page_bytes=16 * 23_040, pages=20_000
)


@dataclass(slots=True)
class _Run:
    """A request that is here. `index`: of its next token."""

    request: Request
    stage: Stage
    index: int
    adopted: bool
    fresh: bool = True


class ScriptedLink:
    """One worker, in the process of whoever holds it. Implements `WorkerLink`."""

    def __init__(self, info: WorkerInfo, words: Sequence[int]) -> None:
        self.info = info
        self._words = words
        self._running: dict[RequestId, _Run] = {}
        self._leases: set[LeaseId] = set()
        self._news = asyncio.Event()
        self._steps = self._tokens = 0

    async def add(self, request: Request, stage: Stage = Stage.WHOLE) -> Admitted:
        """See `WorkerLink`."""
        return self._take(_Run(request, stage, 0, adopted=False))

    async def adopt(self, request: Request, offer: Offer) -> Admitted:
        """See `WorkerLink`."""
        return self._take(_Run(request, Stage.WHOLE, len(request.resumed[0]), adopted=True))

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        """See `WorkerLink`."""
        ended = self._running.pop(id, None)
        return Aborted(request=id, sequences=(0,)) if ended else Unknown(request=id)

    async def grant(self, lease: LeaseId, taker: Incarnation, attempt: int) -> LeaseHeld:
        """See `WorkerLink`. Whoever is granted the pages takes them at once."""
        self._leases.discard(lease)
        return LeaseHeld(lease)

    async def renew(self, leases: Sequence[LeaseId]) -> None:
        """See `WorkerLink`."""

    async def release(self, lease: LeaseId) -> None:
        """See `WorkerLink`."""
        self._leases.discard(lease)

    async def set_role(self, role: Role) -> None:
        """See `WorkerLink`."""
        self.info = replace(self.info, role=role)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        """See `WorkerLink`."""
        next_s = time.monotonic()
        while True:
            if not self._running:
                self._news.clear()
                await self._news.wait()
            next_s = max(next_s + STEP_S, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())
            if events := self._step():
                yield events

    def view(self) -> WorkerView:
        """See `WorkerLink`."""
        running = len(self._running)
        context = sum(len(r.request.prompt) + r.index for r in self._running.values())
        held = context // KV.page_tokens + running
        return WorkerView(
            running=running,
            waiting=0,
            free_pages=KV.pages - held,
            held_pages=held,
            cached_pages=0,
            total_pages=KV.pages,
            peak_pages=held,
            prefix_queried_tokens_total=0,
            prefix_hit_tokens_total=0,
            preemptions_total=0,
            steps_total=self._steps,
            computed_tokens_total=self._tokens,
            running_sequences=running,
            context_tokens=context,
            leases=len(self._leases),
            busy_s_total=self._steps * STEP_S,
        )

    def _take(self, run: _Run) -> Admitted:
        self._running[run.request.id] = run
        self._news.set()
        return Admitted(request=run.request.id, attempt=run.request.attempt)

    def _step(self) -> list[Event]:
        self._steps += 1
        events: list[Event] = []
        for id, run in list(self._running.items()):
            if run.fresh:
                run.fresh = False
                events.append(_beginning(run))
                self._tokens += 0 if run.adopted else len(run.request.prompt) - 1
            self._tokens += 1
            events.append(self._token(run))
            if run.index == run.request.sampling.max_tokens:
                del self._running[id]
                events.append(_end(run.request))
            elif run.stage is Stage.PREFILL:
                del self._running[id]
                events.append(self._offer(run.request))
        return events

    def _token(self, run: _Run) -> TokenGenerated:
        index, run.index = run.index, run.index + 1
        return TokenGenerated(
            request=run.request.id,
            attempt=run.request.attempt,
            sequence=0,
            index=index,
            token=self._words[index % len(self._words)],
        )

    def _offer(self, request: Request) -> Offer:
        """The pages are made up, but as many and as long to tell as real ones."""
        tokens = len(request.prompt)
        table = tuple(range(-(-tokens // KV.page_tokens)))
        lease = LeaseId(os.urandom(16).hex())
        self._leases.add(lease)
        return Offer(
            request=request.id,
            attempt=request.attempt,
            lease=lease,
            ttl_s=10.0,
            owner=self.info.id,
            incarnation=self.info.incarnation,
            kv=KV,
            numerics=self.info.model.numerics,
            pages=tuple(OfferedPage(p, 2, (p + 1) * 0x9E3779B97F4A7C15 % 2**64) for p in table),
            sequences=(OfferedSequence(0, tokens, table),),
        )


def _beginning(run: _Run) -> Event:
    request = run.request
    if run.adopted:
        return Pulled(
            request=request.id,
            attempt=request.attempt,
            pulled_tokens=len(request.prompt),
            cached_tokens=0,
        )
    return Started(request=request.id, attempt=request.attempt, cached_tokens=0, queued_s=0.0)


def _end(request: Request) -> SequenceEnded:
    return SequenceEnded(
        request=request.id, attempt=request.attempt, sequence=0, reason=FinishReason.LENGTH
    )


def scripted_links(roles: Sequence[Role], text: LoadedText) -> list[ScriptedLink]:
    """One worker of each of these roles, named after it, for the model of `text`."""
    tokenizer = text.tokenizer
    model = ModelInfo(
        name="scripted",
        identity=text.identity,
        numerics="script",
        vocab_size=tokenizer.vocab_size,
        context_len=MAX_MODEL_LEN,
        eos_token_ids=tokenizer.eos_token_ids,
        kv_bytes_per_token=KV.page_bytes // KV.page_tokens,
    )
    words = tokenizer.encode(WORDS)
    return [
        ScriptedLink(
            WorkerInfo(
                id=WorkerId(f"{role.value}-{number}"),
                incarnation=Incarnation(os.urandom(8).hex()),
                model=model,
                max_model_len=MAX_MODEL_LEN,
                role=role,
                kv=KV,
                pid=os.getpid(),
            ),
            words,
        )
        for number, role in enumerate(roles)
    ]


async def _join(folder: Path, roles: Sequence[Role]) -> None:
    """Serve one gateway, until it ends."""

    async def new_life() -> None:
        sys.exit("the gateway is gone")

    ports = [
        WorkerPort(link, gateway_socket(folder), new_life=new_life, clock=time.monotonic)
        for link in scripted_links(roles, load_text(Config()))
    ]
    await asyncio.gather(*(port.run() for port in ports))


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[2])})
    uvloop.run(_join(Path(sys.argv[1]), [Role(name) for name in sys.argv[3:]]))
