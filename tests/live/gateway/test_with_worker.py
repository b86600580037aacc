"""The whole way, from a socket to the scheduler and back, with only the model scripted."""

import asyncio
import gc
import random
import tracemalloc
from itertools import pairwise

import httpx
import openai
import pytest
from gateway_kit import MODEL, events_of, listening, serving
from scripted_worker import at_rest, scripted_worker

from antiphon.live.gateway import Keyring, create_app
from antiphon.live.worker import Worker
from antiphon.types import HttpConfig, SchedulerConfig

CHAT = "/v1/chat/completions"
TALE = "Once upon a time 👩‍👩‍👧 there was naïve 数学 and 🇫🇷 in a land far, far away. " * 40


@pytest.fixture
def tale(tokenizer):
    """Every answer is the tale, from the start, then end-of-sequence."""
    words = (*tokenizer.encode(TALE), tokenizer.eos_token_ids[0])
    return lambda request, sequence, index: words[index % len(words)]


@pytest.fixture
def config() -> HttpConfig:
    return HttpConfig(keep_alive_s=5.0, request_timeout_s=60.0)


def chat(content: str = "Tell me a tale.", **fields) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


def text_of(stream: str) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in events_of(stream)
        for choice in event.get("choices", ())
    )


async def test_a_story_streamed_and_whole(tokenizer, template, config, tale):
    worker, _ = scripted_worker(tokenizer, tale)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        whole = (await client.post(CHAT, json=chat())).json()
        assert whole["choices"][0]["message"]["content"] == TALE
        assert whole["choices"][0]["finish_reason"] == "stop"
        streamed = await client.post(CHAT, json=chat(stream=True))
        assert text_of(streamed.text) == TALE
        await at_rest(worker)


async def test_a_repeated_prompt_reports_cached_tokens(tokenizer, template, config, tale):
    worker, _ = scripted_worker(tokenizer, tale)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as ai,
    ):
        messages = chat("many words " * 100)["messages"]
        cached = []
        for _ in range(2):
            answer = await ai.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
            assert answer.usage is not None
            assert answer.usage.prompt_tokens_details is not None
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        assert cached[0] == 0
        assert cached[1] >= 192
        page = (await httpx.AsyncClient().get(f"{url}/metrics")).text
        hits = next(x for x in page.splitlines() if x.startswith("vllm:prefix_cache_hits_total"))
        assert float(hits.split()[-1]) == cached[1]


async def test_tenants_do_not_share_a_cache(tokenizer, template, config, tale):
    worker, _ = scripted_worker(tokenizer, tale)
    keys = Keyring(("alice", "bob"))
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, keys)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        cached = {}
        for key in ("alice", "bob", "alice"):
            response = await client.post(
                CHAT,
                json=chat("many words " * 100, max_tokens=1),
                headers={"authorization": f"Bearer {key}"},
            )
            details = response.json()["usage"]["prompt_tokens_details"]
            cached.setdefault(key, []).append(details["cached_tokens"])
        assert cached["bob"] == [0]
        assert cached["alice"][0] == 0 < cached["alice"][1]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_frees_the_memory_within_one_step(
    tokenizer, template, config, tale, monkeypatch, stream
):
    """The pass that runs when the client leaves is the last one."""
    aborted = asyncio.Event()
    abort = Worker.abort

    async def noted(self, *arguments):
        answer = await abort(self, *arguments)
        aborted.set()
        return answer

    monkeypatch.setattr(Worker, "abort", noted)
    worker, engine = scripted_worker(tokenizer, tale)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        body = chat(stream=stream, max_tokens=3500, ignore_eos=True)

        async def ask():
            async with client.stream("POST", CHAT, json=body) as response:
                async for _ in response.aiter_raw():
                    pass

        asking = asyncio.create_task(ask())
        async with asyncio.timeout(10):
            while engine.passes < 20:
                await asyncio.sleep(0)
            engine.free.clear()
            while not engine.held.is_set():
                await asyncio.sleep(0)
            passes = engine.passes
            assert worker.view().held_pages > 0
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await aborted.wait()
        assert engine.passes == passes
        engine.free.set()
        await at_rest(worker)
        assert engine.passes == passes, "the worker went on for nobody"
        page = service.metrics.render().decode()
        assert 'outcome="cancelled"' in page


async def test_a_full_queue_is_429_with_retry_after(tokenizer, template, config, tale):
    limits = SchedulerConfig(max_num_seqs=1, max_queue=1)
    worker, _ = scripted_worker(tokenizer, tale, scheduler=limits)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        answers = await asyncio.gather(
            *(client.post(CHAT, json=chat(stream=True, max_tokens=200)) for _ in range(12))
        )
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) == {200, 429}
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["code"] == "queue_full"
        await at_rest(worker)


async def test_a_prompt_longer_than_the_memory_is_a_400(tokenizer, template, config, tale):
    worker, _ = scripted_worker(tokenizer, tale, pages=8)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for stream in (False, True):
            response = await client.post(CHAT, json=chat("word " * 1000, stream=stream))
            assert response.status_code == 400
            error = response.json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")


async def test_drain_lets_streams_end_and_then_nothing_runs(tokenizer, template, config, tale):
    worker, _ = scripted_worker(tokenizer, tale)
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        running = [asyncio.create_task(client.post(CHAT, json=chat(stream=True))) for _ in range(5)]
        async with asyncio.timeout(10):
            while worker.view().running < 5:
                await asyncio.sleep(0)
        draining = asyncio.create_task(service.gateway.drain(30))
        await asyncio.sleep(0)
        assert (await client.post(CHAT, json=chat())).status_code == 503
        assert await draining is True
        for answer in await asyncio.gather(*running):
            assert text_of(answer.text) == TALE
        await at_rest(worker)


async def one_of_many(client, number: int, chance: random.Random) -> str:
    """One streamed call, perhaps broken off; says how it ended."""
    leave_after = chance.choice([None, 0, 1, 5, 20])
    body = chat(
        f"Tale number {number % 20}",
        stream=True,
        max_tokens=chance.choice([1, 10, 80]),
        n=chance.choice([1, 1, 2]),
        stop=chance.choice([None, "land", "time 👩"]),
    )
    received, chunks = "", 0
    async with client.stream("POST", CHAT, json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for part in response.aiter_text():
            received += part
            chunks += 1
            if leave_after is not None and chunks > leave_after:
                return "left"
    assert received.count("[DONE]") == 1
    ended = [
        choice["index"]
        for event in events_of(received)
        for choice in event["choices"]
        if choice["finish_reason"]
    ]
    assert sorted(ended) == list(range(body["n"]))
    return "done"


async def test_two_hundred_streams_with_random_aborts(tokenizer, template, config, tale):
    """Each ends once, all memory comes back, and what Python holds does not grow."""
    worker, _ = scripted_worker(tokenizer, tale, pages=512)
    limits = httpx.Limits(max_connections=250, max_keepalive_connections=50)
    held_bytes: list[int] = []
    tracemalloc.start()
    async with (
        worker,
        serving(worker, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
    ):
        total = 0
        for seed, streams in enumerate((20, 200, 200, 200)):
            chance = random.Random(seed)
            async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
                ends = await asyncio.gather(
                    *(one_of_many(client, number, chance) for number in range(streams))
                )
            total += len(ends)
            assert set(ends) == {"left", "done"}
            await at_rest(worker)
            gc.collect()
            held_bytes.append(tracemalloc.get_traced_memory()[0])
            settled = sum(
                float(line.split()[-1])
                for line in service.metrics.render().decode().splitlines()
                if line.startswith("antiphon_requests_total{")
            )
            assert settled == total, "every request settles exactly once"
        assert await service.gateway.drain(1)
    tracemalloc.stop()
    grown = [after - before for before, after in pairwise(held_bytes[1:])]  # a leak: in each round
    assert min(grown) < 100_000, f"memory grew: {held_bytes} bytes"
