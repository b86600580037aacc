"""A call in time: refusals, keep-alive, errors in mid-stream, clients that leave."""

import asyncio
import json
import time

import httpx
import pytest
from gateway_kit import MODEL, chat, events_of, listening, serving

from antiphon.core.requests import SoleWorker
from antiphon.errors import BugError
from antiphon.live.gateway import Gateway, Keyring, Metrics, Ports, Served, State, create_app
from antiphon.live.gateway.auth import Tenant
from antiphon.live.gateway.errors import from_rejected
from antiphon.live.gateway.intake import Call
from antiphon.types import (
    FinishReason,
    HttpConfig,
    Rejected,
    RejectReason,
    SamplingParams,
)

CHAT = "/v1/chat/completions"


async def settled(service) -> None:
    """Everything that was opened has ended."""
    assert await service.gateway.drain(10)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reason, status, code",
    [
        (RejectReason.TOO_LONG, 400, "context_length_exceeded"),
        (RejectReason.INVALID, 400, "invalid_value"),
        (RejectReason.QUEUE_FULL, 429, "queue_full"),
        (RejectReason.TTFT_UNREACHABLE, 429, "ttft_unreachable"),
        (RejectReason.TPOT_UNREACHABLE, 429, "tpot_unreachable"),
        (RejectReason.DRAINING, 503, "draining"),
        (RejectReason.DEADLINE, 504, "deadline_exceeded"),
    ],
)
async def test_a_refusal_is_a_real_status_even_for_a_stream(
    client, puppet, stream, reason, status, code
):
    puppet.reject = reason
    puppet.retry_after_s = 2.1
    response = await client.post(CHAT, json=chat(stream=stream))
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    wait = response.headers.get("retry-after")
    assert wait == ("3" if status in (429, 503) else None)


async def test_retry_after_is_at_least_a_second(client, puppet):
    puppet.reject = RejectReason.QUEUE_FULL
    for hint in (None, 0.0, 0.001):
        puppet.retry_after_s = hint
        response = await client.post(CHAT, json=chat())
        assert response.headers["retry-after"] == "1"


async def test_keep_alive_comments_while_nothing_comes(puppet, tokenizer, template):
    config = HttpConfig(keep_alive_s=0.02)
    async with (
        serving(puppet, tokenizer, template, config) as service,
        listening(create_app(service, Keyring())) as url,
        httpx.AsyncClient(base_url=url) as client,
        client.stream("POST", CHAT, json=chat(stream=True)) as response,
    ):
        lines = response.aiter_lines()
        comments = 0
        async for line in lines:
            comments += line == ": keep-alive"
            if comments == 3:
                break
        assert response.status_code == 200
        request = await puppet.request()
        puppet.tokens(request, tokenizer.encode("late"))
        puppet.end(request)
        rest = "\n".join([line async for line in lines])
        assert "late" in rest
        assert rest.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    "cause, status, kind",
    [("fault", 500, "server_error"), ("lost", 503, "service_unavailable_error")],
)
async def test_a_failure_is_an_error_event_after_the_first_byte_and_a_status_before(
    client, puppet, tokenizer, started, cause, status, kind
):
    async def worker():
        request = await puppet.request()
        puppet.start(request)
        if started:
            puppet.tokens(request, tokenizer.encode("Hello"))
            await puppet.read()
            await asyncio.sleep(0)
        if cause == "fault":
            puppet.end(request, FinishReason.ERROR, message="logits are not finite")
        else:
            puppet.die()

    response, _ = await asyncio.gather(client.post(CHAT, json=chat(stream=True)), worker())
    if not started:
        assert response.status_code == status
        assert response.json()["error"]["type"] == kind
        return
    assert response.status_code == 200
    *chunks, last = events_of(response.text)
    assert chunks[1]["choices"][0]["delta"]["content"] == "Hello"
    assert last["error"]["type"] == kind
    assert "usage" not in last
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_fails_fails_the_call_and_stops_the_others(client, puppet, stream):
    async def worker():
        request = await puppet.request()
        puppet.end(request, FinishReason.ERROR, sequence=1, message="logits are not finite")
        await puppet.until(lambda: puppet.aborts)

    response, _ = await asyncio.gather(client.post(CHAT, json=chat(stream=stream, n=3)), worker())
    assert response.status_code == 500
    assert "logits are not finite" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_the_call_with_504(client, puppet, stream):
    response = await client.post(CHAT, json=chat(stream=stream, timeout=0.02))
    assert response.status_code == 504
    assert response.json()["error"]["type"] == "timeout_error"
    await puppet.until(lambda: puppet.aborts)


async def test_a_deadline_in_mid_stream_is_an_error_event(client, puppet, tokenizer):
    async def worker():
        request = await puppet.request()
        puppet.tokens(request, tokenizer.encode("Hello"))

    headers = {"x-request-timeout-s": "0.05"}
    response, _ = await asyncio.gather(
        client.post(CHAT, json=chat(stream=True), headers=headers), worker()
    )
    *chunks, last = events_of(response.text)
    assert chunks[1]["choices"][0]["delta"]["content"] == "Hello"
    assert last["error"]["type"] == "timeout_error"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("started", [False, True])
async def test_a_client_that_leaves_is_cancelled(url, puppet, service, tokenizer, stream, started):
    async with httpx.AsyncClient(base_url=url) as client:

        async def ask():
            async with client.stream("POST", CHAT, json=chat(stream=stream)) as response:
                async for _ in response.aiter_lines():
                    pass

        asking = asyncio.create_task(ask())
        request = await puppet.request()
        if started:
            puppet.start(request)
            puppet.tokens(request, tokenizer.encode("Hello"))
            await puppet.read()
        assert puppet.aborts == []
        asking.cancel()
        await puppet.until(lambda: puppet.aborts)
    assert puppet.aborts == [(request.id, None)]
    await settled(service)


async def test_a_reader_that_is_stuck_gets_what_it_missed_as_one_chunk(
    service, keys, puppet, tokenizer
):
    """Its `send` hangs, as uvicorn's does when the socket is full: only its own text piles up."""
    app = create_app(service, keys)
    body = json.dumps(chat(stream=True)).encode()
    sent: list[bytes] = []
    stuck, free = asyncio.Event(), asyncio.Event()

    async def send(message):
        if message["type"] == "http.response.body":
            sent.append(message["body"])
            if len(sent) == 2:
                stuck.set()
                await free.wait()

    messages = iter([{"type": "http.request", "body": body}])

    async def receive():
        for message in messages:
            return message
        await asyncio.Event().wait()

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": CHAT,
        "raw_path": CHAT.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json")],
        "server": ("test", 80),
        "client": ("test", 1),
    }
    call = asyncio.create_task(app(scope, receive, send))
    request = await puppet.request()
    words = tokenizer.encode(" word" * 1000)
    for index, token in enumerate(words):
        puppet.tokens(request, [token], first=index)
        if index < 2:
            await puppet.read()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    await asyncio.wait_for(stuck.wait(), 5)
    puppet.end(request)
    await puppet.read()
    assert len(sent) == 2
    free.set()
    await asyncio.wait_for(call, 5)
    assert len(sent) == 3, "998 tokens, the reason and [DONE] in one write"
    text = b"".join(sent).decode()
    assert text.count(" word") == 1000
    assert len(events_of(text)) == 1 + 2 + 1 + 1


async def test_a_slow_reader_holds_up_nobody_and_costs_bounded_memory(
    url, puppet, service, tokenizer
):
    """A client that never reads: its text piles up as one delta while others are served."""
    words = tokenizer.encode(" word" * 100)
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = json.dumps(chat(stream=True)).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: "
        + str(len(body)).encode()
        + b"\r\n\r\n"
        + body
    )
    slow = await puppet.request()
    puppet.start(slow)
    limit = slow.sampling.max_tokens or 0
    sent = 0
    while sent + len(words) < limit:
        puppet.tokens(slow, words, first=sent)
        sent += len(words)
        await puppet.read()
    puppet.script = lambda request, sequence: tokenizer.encode("quick")
    async with httpx.AsyncClient(base_url=url) as client:
        quick = await client.post(CHAT, json=chat())
        assert quick.json()["choices"][0]["message"]["content"] == "quick"
    puppet.end(slow)
    received = b""
    while b"[DONE]" not in received[-100:]:
        received += await asyncio.wait_for(reader.read(65536), 10)
    writer.close()
    text = received.decode()
    assert text.count(" word") == sent
    await settled(service)


async def test_late_events_change_nothing(client, puppet, service, tokenizer):
    puppet.script = lambda request, sequence: tokenizer.encode("done")
    await client.post(CHAT, json=chat())
    request = puppet.requests[0]
    puppet.tokens(request, [5, 6], first=9)
    puppet.end(request)
    await puppet.read()
    page = (await client.get("/metrics")).text
    assert 'antiphon_late_events_total{model_name="scripted",reason="unknown"} 3.0' in page


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
async def test_time_counts_from_the_arrival_of_the_call(
    puppet, tokenizer, template, config, monkeypatch, path
):
    """The text stage takes 3 s of the clock: the worker sees the rest, metrics see it all."""
    now = 100.0
    encode = tokenizer.encode

    def slow(*arguments, **options):
        nonlocal now
        now += 3.0
        return encode(*arguments, **options)

    monkeypatch.setattr(tokenizer, "encode", slow)
    body = chat() if path == CHAT else {"model": MODEL, "prompt": "x"}
    async with (
        serving(puppet, tokenizer, template, config, clock=lambda: now) as service,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(create_app(service, Keyring())),
            base_url="http://localhost",
        ) as client,
    ):
        late = await client.post(path, json=body | {"timeout": 2.0})
        assert late.status_code == 504
        assert late.json()["error"]["code"] == "deadline_exceeded"
        assert puppet.requests == []
        asked_at = now
        asking = asyncio.create_task(client.post(path, json=body | {"timeout": 50.0}))
        request = await puppet.request()
        assert (request.arrived_at, request.deadline) == (asked_at, asked_at + 50.0)
        puppet.start(request)
        puppet.tokens(request, [5])
        puppet.end(request)
        assert (await asking).status_code == 200
        page = service.metrics.render().decode()
    assert 'vllm:time_to_first_token_seconds_sum{model_name="scripted"} 3.0' in page


async def test_a_prompt_that_is_not_read_in_time_is_504_at_once(
    client, puppet, service, monkeypatch
):
    never = asyncio.Event()

    async def stuck(*arguments, **options):
        await never.wait()

    monkeypatch.setattr(service.prompts, "chat", stuck)
    response = await client.post(CHAT, json=chat(timeout=0.02))
    assert response.status_code == 504
    assert response.json()["error"]["type"] == "timeout_error"
    assert puppet.requests == []


async def test_a_link_that_breaks_its_promise_ends_the_gateway(
    puppet, tokenizer, template, config, monkeypatch
):
    async def broken(*_):
        raise BugError("add must answer")

    monkeypatch.setattr(puppet, "add", broken)
    info = puppet.info
    gateway = Gateway(
        SoleWorker(info.id),
        Served(model=info.model, max_model_len=info.max_model_len),
        tokenizer,
        Metrics(MODEL),
        Ports(clock=time.monotonic),
    )
    running = asyncio.create_task(gateway.run())
    gateway.join(puppet)
    await asyncio.sleep(0)
    reply = gateway.open(
        Call(
            id="c",
            prompts=[(1,)],
            sampling=SamplingParams(),
            tenant=Tenant(),
            arrived_at=time.monotonic(),
            timeout_s=5.0,
        )
    )
    with pytest.raises(BugError, match="add must answer"):
        await asyncio.wait_for(running, 5)
    assert gateway.state is State.UNHEALTHY
    assert reply.over
    assert reply.error is not None
    assert reply.error.status == 500


def test_the_reject_reasons_are_all_mapped():
    for reason in RejectReason:
        error = from_rejected(Rejected(request="r", reason=reason, message="m"))  # type: ignore[arg-type]
        assert error.status in (400, 429, 500, 503, 504)
