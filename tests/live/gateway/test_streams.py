"""What happens to a call in time: refusals, keep-alive, errors in mid-stream, clients that leave."""

import asyncio
import json

import httpx
import pytest
from conftest import MODEL, events_of, listening, serving

from antiphon.live.gateway import Keyring, create_app
from antiphon.types import FinishReason, HttpConfig, Rejected, RejectReason

CHAT = "/v1/chat/completions"


def chat(**fields) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


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
@pytest.mark.parametrize("cause", ["fault", "lost"])
async def test_a_failure_is_an_error_event_after_the_first_byte_and_a_500_before(
    client, puppet, tokenizer, started, cause
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
        assert response.status_code == 500
        assert response.json()["error"]["type"] == "server_error"
        return
    assert response.status_code == 200
    *chunks, last = events_of(response.text)
    assert chunks[1]["choices"][0]["delta"]["content"] == "Hello"
    assert last["error"]["type"] == "server_error"
    assert "usage" not in last


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


async def test_a_slow_reader_holds_up_nobody_and_costs_bounded_memory(
    url, puppet, service, tokenizer
):
    """A client that never reads: its text piles up as one delta while others are served."""
    words = tokenizer.encode(" word" * 100)
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = json.dumps(chat(stream=True)).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
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
    assert 'antiphon_late_events_total{model_name="scripted"} 3.0' in page


async def test_drain_finishes_what_runs_and_refuses_what_is_new(client, puppet, service, tokenizer):
    running = asyncio.create_task(client.post(CHAT, json=chat()))
    request = await puppet.request()
    draining = asyncio.create_task(service.gateway.drain(10))
    await asyncio.sleep(0)
    refused = await client.post(CHAT, json=chat())
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert (await client.get("/ready")).status_code == 503
    assert (await client.get("/health")).status_code == 200
    assert not draining.done()
    puppet.tokens(request, tokenizer.encode("done"))
    puppet.end(request)
    assert (await running).json()["choices"][0]["message"]["content"] == "done"
    assert await draining is True
    assert len(puppet.requests) == 1


async def test_drain_cancels_what_takes_too_long(client, puppet, service):
    running = asyncio.create_task(client.post(CHAT, json=chat()))
    await puppet.request()
    assert await service.gateway.drain(0.02) is False
    response = await running
    assert response.status_code == 503
    assert puppet.aborts


async def test_a_lost_worker_makes_the_gateway_unhealthy(client, puppet, service):
    assert (await client.get("/ready")).status_code == 200
    puppet.die()
    while service.gateway.state.value == "ready":
        await asyncio.sleep(0)
    for path in ("/ready", "/health"):
        assert (await client.get(path)).status_code == 503
    response = await client.post(CHAT, json=chat())
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "service_unavailable_error"


async def test_while_the_model_loads(keys):
    app = create_app(None, keys)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/version")).status_code == 200
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "loading"})
        for response in (await client.post(CHAT, json=chat()), await client.get("/v1/models")):
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"


def test_the_reject_reasons_are_all_mapped():
    from antiphon.live.gateway.errors import from_rejected

    for reason in RejectReason:
        error = from_rejected(Rejected(request="r", reason=reason, message="m"))  # type: ignore[arg-type]
        assert error.status in (400, 429, 500, 503, 504)
