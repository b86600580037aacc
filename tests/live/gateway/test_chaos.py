"""Streams through a gateway whose workers are killed all the time: every text comes out whole."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import httpx
import pytest
from gateway_kit import MODEL, events_of, serving_fleet
from puppet_link import PuppetLink, worker_info

from antiphon.core.requests import RequestBook
from antiphon.core.requests.dispatcher import Dispatcher
from antiphon.core.requests.open_request import OpenRequest
from antiphon.core.requests.parts import Parts
from antiphon.core.router import Router
from antiphon.live.gateway import Keyring, create_app
from antiphon.live.gateway import gateway as gateway_module
from antiphon.perf import DEFAULT_LINK_TIME, DEFAULT_STEP_TIME, FittedPhaseTime
from antiphon.testing.honest_offer import honest_offer
from antiphon.types import (
    Aborted,
    Admitted,
    Command,
    Event,
    FinishReason,
    Incarnation,
    LeaseHeld,
    LeaseId,
    LeaseRefusal,
    LeaseRefused,
    Offer,
    Pulled,
    Rejected,
    Request,
    RequestId,
    Role,
    RouterConfig,
    SequenceEnded,
    Stage,
    Started,
    TokenGenerated,
    Unknown,
    WorkerId,
    WorkerInfo,
    WorkerView,
)

TEXT = "/v1/completions"
LENGTH = 12
ROLES = {"p": Role.PREFILL, "q": Role.PREFILL, "d": Role.DECODE, "e": Role.DECODE}


class Runner(PuppetLink):
    """A worker that runs what it is given, a token a turn of the loop, until it is killed."""

    def __init__(self, info: WorkerInfo, words: Sequence[int], pace_s: Callable[[], float]) -> None:
        super().__init__(info)
        self.words = words
        self.pace_s = pace_s
        self.runs: dict[RequestId, asyncio.Task[None]] = {}
        self.leases: dict[LeaseId, tuple[Incarnation, int] | None] = {}
        self.taken_over = 0
        self.dead = False

    async def add(
        self, request: Request, stage: Stage = Stage.WHOLE, fetch: int = 0
    ) -> Admitted | Rejected:
        self._start(
            request, self._prefill(request) if stage is Stage.PREFILL else self._run(request)
        )
        return Admitted(request=request.id)

    async def adopt(self, request: Request, offer: Offer) -> Admitted | Rejected:
        self.taken_over += 1
        self._start(request, self._pull(request, offer))
        return Admitted(request=request.id)

    async def abort(
        self, id: RequestId, attempt: int, sequence: int | None = None
    ) -> Aborted | Unknown:
        run = self.runs.get(id)
        if run is not None and sequence is None:
            run.cancel()
        return Unknown(request=id)

    async def grant(
        self, lease: LeaseId, taker: Incarnation, attempt: int
    ) -> LeaseHeld | LeaseRefused:
        if lease not in self.leases:
            return LeaseRefused(lease, LeaseRefusal.GONE)
        self.leases[lease] = (taker, attempt)
        return LeaseHeld(lease)

    async def release(self, lease: LeaseId) -> None:
        self.leases.pop(lease, None)

    def view(self) -> WorkerView:
        return replace(super().view(), running=len(self.runs), waiting=0, total_pages=10_000)

    async def until_empty(self) -> None:
        """Return when the aborts and releases that are on their way have come.

        They need passes of the loop: on a busy machine no less, only slower ones.
        """
        ends_at = time.monotonic() + 0.15
        passes = 0
        while (self.runs or self.leases) and (passes < 2_000 or time.monotonic() < ends_at):
            await asyncio.sleep(0)
            passes += 1
        assert not self.runs and not self.leases, "a worker keeps what is over"

    def kill(self) -> None:
        self.dead = True
        for run in self.runs.values():
            run.cancel()
        self.die()

    def _start(self, request: Request, work) -> None:
        if self.dead:
            work.close()
            return
        assert request.id not in self.runs, "the same request twice on one worker"
        task = self.runs[request.id] = asyncio.create_task(work)
        task.add_done_callback(lambda _: self.runs.pop(request.id, None))

    async def _pull(self, request: Request, offer: Offer) -> None:
        await asyncio.sleep(2 * self.pace_s())
        owner = OWNERS.get(offer.incarnation)
        granted = (self.info.incarnation, request.attempt)
        there = owner is not None and not owner.dead and owner.leases.get(offer.lease) == granted
        if there and owner is not None:
            del owner.leases[offer.lease]
        self.say(
            Pulled(
                request=request.id,
                attempt=request.attempt,
                pulled_tokens=3 if there else 0,
                cached_tokens=0,
                missing_tokens=0 if there else 3,
            )
        )
        await self._run(request)

    async def _prefill(self, request: Request) -> None:
        await asyncio.sleep(0.001)
        left = self._open(request)
        self.say(self._started(request), *(self._token(request, k) for k in left))
        left = [k for k in left if self._length(request, k) + 1 < LENGTH]
        self.say(*(self._ended(request, k) for k in self._open(request) if k not in left))
        if not left:
            return
        lease = LeaseId(f"{self.info.incarnation}/{request.id}/{request.attempt}")
        self.leases[lease] = None
        self.say(honest_offer(request, self.info, lease=lease, ttl_s=0.05, sequences=left))

    async def _run(self, request: Request) -> None:
        self.say(self._started(request))
        longest = min((self._length(request, k) for k in self._open(request)), default=LENGTH)
        for turn in range(LENGTH - longest):
            await asyncio.sleep(self.pace_s())
            step: list[Event] = []
            for k in self._open(request):
                index = self._length(request, k) + turn
                if index < LENGTH:
                    step.append(self._token(request, k, turn))
                if index == LENGTH - 1:
                    step.append(self._ended(request, k))
            self.say(*step)

    def _open(self, request: Request) -> list[int]:
        return [k for k in range(request.sampling.n) if k not in request.done]

    def _length(self, request: Request, sequence: int) -> int:
        return len(request.resumed[sequence]) if request.resumed else 0

    def _started(self, request: Request) -> Started:
        return Started(request=request.id, attempt=request.attempt, cached_tokens=0, queued_s=0.0)

    def _token(self, request: Request, sequence: int, turn: int = 0) -> TokenGenerated:
        index = self._length(request, sequence) + turn
        return TokenGenerated(
            request=request.id,
            attempt=request.attempt,
            sequence=sequence,
            index=index,
            token=self.words[(index + sequence) % len(self.words)],
        )

    def _ended(self, request: Request, sequence: int) -> SequenceEnded:
        return SequenceEnded(
            request=request.id,
            attempt=request.attempt,
            sequence=sequence,
            reason=FinishReason.LENGTH,
        )


OWNERS: dict[Incarnation, Runner] = {}


class Killer:
    """Kills a worker every few milliseconds, and lets it join anew a little later."""

    def __init__(self, tokenizer, words: Sequence[int], chance: random.Random) -> None:
        self.tokenizer = tokenizer
        self.words = words
        self.chance = chance
        self.lives = 0
        self.pace_s = 0.001
        self.alive = {name: self.life(name) for name in ROLES}

    def life(self, name: str) -> Runner:
        self.lives += 1
        info = worker_info(
            vocab_size=self.tokenizer.vocab_size,
            eos=self.tokenizer.eos_token_ids,
            name=name,
            life=f"{name}-{self.lives}",
            role=ROLES[name],
        )
        runner = OWNERS[info.incarnation] = Runner(info, self.words, lambda: self.pace_s)
        return runner

    def taken_over(self) -> int:
        """How many requests the workers that live have taken over from others."""
        return sum(runner.taken_over for runner in self.alive.values())

    async def run(self, gateway) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.002, 0.02))
            name = self.chance.choice(sorted(self.alive))
            self.alive[name].kill()
            await asyncio.sleep(self.chance.uniform(0.0, 0.01))
            while gateway.fleet.link(WorkerId(name)) is not None:
                await asyncio.sleep(0)
            self.alive[name] = self.life(name)
            assert gateway.join(self.alive[name]) is None


async def one_call(client: httpx.AsyncClient, patience_s: float | None) -> tuple[list[str], bool]:
    """The texts of both choices, and whether the call ended well."""
    body = {"model": MODEL, "prompt": [5, 6, 7], "n": 2, "stream": True, "max_tokens": LENGTH}
    if patience_s is not None:
        body["timeout"] = patience_s
    response = await client.post(TEXT, json=body)
    if response.status_code == 504 and patience_s is not None:
        return ["", ""], False
    assert response.status_code == 200, response.text
    parts = ["", ""]
    for event in events_of(response.text):
        if "error" in event:
            assert event["error"]["type"] == "timeout_error"
            return parts, False
        for choice in event["choices"]:
            parts[choice["index"]] += choice["text"]
    return parts, True


async def test_no_token_is_lost_or_repeated_while_workers_are_killed(tokenizer, template, config):
    words = tokenizer.encode(" one two three four five six seven eight nine ten eleven twelve")
    assert len(words) == LENGTH
    killer = Killer(tokenizer, words, random.Random(3))
    router = Router(
        RouterConfig(policy="least-loaded", hold_s=0.01),  # which always splits if it can
        times=FittedPhaseTime(step_time=DEFAULT_STEP_TIME),
        transfer=DEFAULT_LINK_TIME,
        kv_bytes_per_token=1,
    )
    links = list(killer.alive.values())
    texts = [
        tokenizer.decode([words[(index + k) % LENGTH] for index in range(LENGTH)]) for k in range(2)
    ]
    async with serving_fleet(links, router, tokenizer, template, config) as service:
        transport = httpx.ASGITransport(create_app(service, Keyring()))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=60
        ) as ai:
            killing = asyncio.create_task(killer.run(service.gateway))
            slots = asyncio.Semaphore(25)
            longest_s = 0.05

            async def call(number: int) -> None:
                hurried = number % 3 == 0
                async with slots:
                    patience_s = killer.chance.uniform(0.002, longest_s) if hurried else None
                    parts, whole = await one_call(ai, patience_s)
                assert whole or hurried
                for part, text in zip(parts, texts, strict=True):
                    assert part == text if whole else text.startswith(part)

            await asyncio.gather(*(call(number) for number in range(300)))
            killing.cancel()
            killer.pace_s = 3600.0  # from here on nothing is over unless it is stopped
            before = killer.taken_over()
            while killer.taken_over() < before + 10:
                longest_s *= 2
                await asyncio.gather(*(call(3 * number) for number in range(25)))
            page = (await ai.get("/metrics")).text
        value: dict[str, float] = defaultdict(float)
        for line in (line for line in page.splitlines() if line[0] != "#"):
            series, count = line.split()
            value[series.partition("{")[0]] += float(count)
        for name in ("antiphon_retries_total", "antiphon_pulls_total", "antiphon_offers_total"):
            assert value[name] > 0, "nothing happened"
        assert killer.lives > 20
        assert router.open_requests == 0
        assert value["antiphon_leases"] == 0
        for runner in (one for one in killer.alive.values() if not one.dead):
            await runner.until_empty()


class StartsOver(OpenRequest):
    """Begins each attempt at the prompt, as if nothing had been delivered."""

    def resumed(self) -> Request:
        return replace(super().resumed(), resumed=())


class NeverReleases(Dispatcher):
    """Lets offers run out."""

    def release(self, offer: Offer) -> list[Command]:
        return []


class NeverStops(Dispatcher):
    """Lets go on what is over."""

    def stop(self, entry: OpenRequest, sequence: int | None = None) -> list[Command]:
        return []


@pytest.mark.parametrize(
    "fault",
    [
        Parts(open_request=StartsOver),
        Parts(dispatcher=NeverReleases),
        Parts(dispatcher=NeverStops),
    ],
    ids=["the resume point lost", "a release forgotten", "no abort"],
)
async def test_a_faulty_book_is_found(tokenizer, template, config, monkeypatch, fault):
    def faulty_book(config, router):
        return RequestBook(router, max_held=config.max_held, parts=fault)

    monkeypatch.setattr(gateway_module, "book_of", faulty_book)
    with pytest.raises((AssertionError, KeyError)):
        await test_no_token_is_lost_or_repeated_while_workers_are_killed(
            tokenizer, template, config
        )
