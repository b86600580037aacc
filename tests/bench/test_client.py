"""The client against real sockets; servers that answer as real ones do, and badly."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from antiphon.bench import Arrival, Client, ScoredToken, Server, run_open_loop
from antiphon.bench.client import wait_until_ready
from antiphon.workload import Ask

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def an_ask(number: int = 0, *, stream: bool = True, n: int = 1) -> Ask:
    return Ask(number=number, text="hi", max_tokens=4, temperature=0.0, seed=1, n=n, stream=stream)


async def streamed(request: web.Request, lines: list[object], end: bytes = b"data: [DONE]\n\n"):
    response = web.StreamResponse(
        headers={"x-request-id": "r-1", "content-type": "text/event-stream; charset=utf-8"}
    )
    await response.prepare(request)
    for line in lines:
        await response.write(b"data: " + json.dumps(line).encode() + b"\n\n")
    await response.write(end)
    return response


def piece(index: int, text: str | None = None, reason: str | None = None) -> dict[str, object]:
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


async def test_a_stream_of_two_choices() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["n"] == 2
        assert body["seed"] == 1
        lines = [piece(0, "a"), piece(1, "x"), piece(0, "b"), piece(1, None, "length")]
        counts = {"prompt_tokens": 3, "completion_tokens": 3}
        usage = {"choices": [], "usage": {**counts, "prompt_tokens_details": {"cached_tokens": 2}}}
        return await streamed(request, [*lines, piece(0, None, "stop"), usage])

    begun: list[None] = []
    async with (
        server(handler) as url,
        Client(Server(url=url, model="m"), on_first_content=lambda: begun.append(None)) as client,
    ):
        answer = await client.send(an_ask(n=2))
    assert answer.ok
    assert len(begun) == 1
    assert [choice.text for choice in answer.choices] == ["ab", "x"]
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (3, 3, 2)
    assert len(answer.token_at) == 3
    assert answer.request_id == "r-1"
    assert answer.ttft_s is not None
    assert len(answer.gaps_s) == 2


async def test_all_that_an_ask_says_is_sent_and_log_probabilities_are_kept() -> None:
    ask = Ask(
        number=0,
        text="hi",
        max_tokens=8,
        temperature=0.8,
        seed=1,
        frequency_penalty=0.4,
        presence_penalty=0.3,
        repetition_penalty=1.1,
        min_tokens=4,
        stop=(" a ", " b "),
        top_logprobs=1,
    )
    bodies: list[dict[str, object]] = []

    def scored(text: str, logprob: float) -> dict[str, object]:
        token = {"token": text, "logprob": logprob, "bytes": [97]}
        content = [{**token, "top_logprobs": [token]}]
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return {"choices": [{**choice, "logprobs": {"content": content}}]}

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return await streamed(
            request, [scored("a", -0.5), scored("b", -0.25), piece(0, None, "stop")]
        )

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(ask)
        await client.send(an_ask())
    expected = {
        "frequency_penalty": 0.4,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.1,
        "min_tokens": 4,
        "stop": [" a ", " b "],
        "logprobs": True,
        "top_logprobs": 1,
    }
    assert {name: bodies[0].get(name) for name in expected} == expected
    assert not expected.keys() & bodies[1].keys()
    assert answer.choices[0].scored == (
        ScoredToken("a", -0.5, (("a", -0.5),)),
        ScoredToken("b", -0.25, (("b", -0.25),)),
    )


async def test_an_answer_that_is_not_streamed() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        choice = {"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": 2}})

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(an_ask(stream=False))
    assert answer.ok
    assert answer.choices[0].text == "hello"


async def test_a_refusal_keeps_its_status_and_text() -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "queue is full"}}, status=429)

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(an_ask())
    assert not answer.ok
    assert answer.status == 429
    assert "queue is full" in answer.error


@pytest.mark.parametrize("end", [b"", b"data: not json\n\n"])
async def test_a_broken_stream_is_an_error(end: bytes) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await streamed(request, [piece(0, "a")], end)

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(an_ask())
    assert not answer.ok
    assert answer.error
    assert answer.choices[0].text == "a"


async def test_an_error_event_ends_the_answer() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await streamed(request, [piece(0, "a"), {"error": {"message": "lost"}}])

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(an_ask())
    assert answer.error == "lost"


async def test_nobody_listens() -> None:
    async with Client(Server(url="http://127.0.0.1:1", model="m")) as client:
        answer = await client.send(an_ask())
    assert answer.status == 0
    assert answer.error
    with pytest.raises(TimeoutError):
        await wait_until_ready("http://127.0.0.1:1", timeout_s=0.1)


async def test_open_loop_sends_at_its_times_though_answers_are_slow() -> None:
    """The third ask is sent while the first two still wait for the server."""
    held: list[web.Request] = []
    come = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        held.append(request)
        if len(held) == 3:
            come.set()
        await come.wait()
        return await streamed(request, [piece(0, "a"), piece(0, None, "stop")])

    async with server(handler) as url, Client(Server(url=url, model="m")) as client:
        arrivals = [Arrival(0.0, an_ask(0)), Arrival(0.0, an_ask(1)), Arrival(0.01, an_ask(2))]
        answers = await run_open_loop(client, arrivals)
    assert [answer.number for answer in answers] == [0, 1, 2]
    assert all(answer.ok for answer in answers)
    assert answers[2].due_at - answers[0].due_at == pytest.approx(0.01)
