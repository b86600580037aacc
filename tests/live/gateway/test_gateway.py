"""The gateway with several workers: deaths, and what it leaves on record."""

import asyncio
import io
import json

import pytest
from gateway_kit import MODEL, events_of
from puppet_cluster import TEXT, Chosen, client_of, text_of

from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import replay
from antiphon.core.requests import BOOK, RequestBook
from antiphon.errors import PeerError
from antiphon.live.gateway import RequestLog
from antiphon.types import Config, FinishReason, RejectReason, Stage, WorkerId
from antiphon.wire import DecisionLogWriter, read_decision_log


async def test_a_stream_survives_the_death_of_its_worker(pair, tokenizer):
    """No token is lost or repeated, what is done stays done, and usage counts each token once."""
    a, b = pair.puppets["a"], pair.puppets["b"]
    words = tokenizer.encode("one two three four five six")
    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            request = await a.request()
            a.start(request)
            a.tokens(request, words[:3], sequence=0)
            a.tokens(request, words[:2], sequence=1)
            a.end(request, FinishReason.STOP, sequence=1)
            await a.read()
            a.die()
            again = await b.request()
            assert again.attempt == 2
            assert again.resumed == (tuple(words[:3]), tuple(words[:2]))
            assert again.done == (1,)
            a.tokens(request, words[3:4], sequence=0, first=3)  # of no use any more
            b.start(again)
            b.tokens(again, words[3:], sequence=0, first=3)
            b.end(again, FinishReason.LENGTH, sequence=0)

        body = {"model": MODEL, "prompt": [5, 6, 7], "n": 2, "stream": True, "max_tokens": 6}
        body["stream_options"] = {"include_usage": True}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.status_code == 200
        assert text_of(response.text, 0) == "one two three four five six"
        assert text_of(response.text, 1) == "one two"
        usage = events_of(response.text)[-1]["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, len(words) + 2)
        assert (await client.get("/ready")).status_code == 200
        page = (await client.get("/metrics")).text
        assert 'antiphon_retries_total{model_name="scripted"} 1.0' in page
        assert 'worker="b"' in page
        assert 'worker="a"' not in page


async def test_when_every_worker_died_with_it_the_request_is_an_error(pair):
    """It may be what kills them: after three, nobody else gets it."""
    pair.router.prefer = ("a", "b", "c", "d")
    pair.puppet("c")
    pair.puppet("d")

    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            for name in "abc":
                request = await pair.puppets[name].request()
                pair.puppets[name].start(request)
                await pair.puppets[name].read()
                pair.puppets[name].die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        assert response.status_code == 500
        assert "3 attempts in a row" in response.json()["error"]["message"]
        assert pair.puppets["d"].requests == []
        assert (await client.get("/ready")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_with_the_last_worker_gone_a_request_that_had_begun_is_503(pair, tokenizer, stream):
    a, b = pair.puppets["a"], pair.puppets["b"]
    async with pair.serving() as service, client_of(service) as client:

        async def workers() -> None:
            b.die()
            request = await a.request()
            a.tokens(request, tokenizer.encode("one"))
            await a.read()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7], "stream": stream}
        response, _ = await asyncio.gather(client.post(TEXT, json=body), workers())
        if stream:
            error = events_of(response.text)[-1]["error"]
        else:
            assert response.status_code == 503
            error = response.json()["error"]
        assert error["code"] == "no_worker"


async def test_a_worker_that_leaves_a_call_unanswered_is_lost(pair, monkeypatch):
    a, b = pair.puppets["a"], pair.puppets["b"]
    lost = []

    async def silent(request, stage=Stage.WHOLE, fetch=0):
        raise PeerError("no answer within 10 s")

    monkeypatch.setattr(a, "add", silent)
    b.script = lambda request, sequence: [5]
    ports = {"on_lost": lambda link, reason: lost.append((link.info.id, reason))}
    async with pair.serving(**ports) as service, client_of(service) as client:
        response = await client.post(TEXT, json={"model": MODEL, "prompt": [5, 6, 7]})
        assert response.status_code == 200
    assert lost == [("a", "a call was not answered: no answer within 10 s")]
    assert b.requests[0].attempt == 2


async def test_a_life_that_is_over_can_not_join_again(pair):
    a = pair.puppets["a"]
    async with pair.serving() as service:
        service.gateway.fleet.lose(a, "for a test")
        refused = service.gateway.join(a)
        assert refused is not None
        assert "given up as lost" in refused.message
        assert service.gateway.join(pair.puppet("a", life="2")) is None


# ── records ──────────────────────────────────────────────────────────────────────────────────────


async def test_each_request_leaves_a_line(pair, tokenizer):
    file = io.BytesIO()
    log = RequestLog(file)
    log.start()
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: [5, 5]
    async with pair.serving(log_request=log) as service, client_of(service) as client:

        async def workers() -> None:
            await a.request()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        await asyncio.gather(client.post(TEXT, json=body), workers())
        b.reject = RejectReason.QUEUE_FULL
        assert (await client.post(TEXT, json=body)).status_code == 429
    log.close()
    first, second = map(json.loads, file.getvalue().splitlines())
    assert (first["outcome"], first["attempts"], first["output_tokens"]) == ("finished", 2, 2)
    assert [one["route"] for one in first["trail"]] == ["a: chosen", "b: chosen"]
    stamps = [first[f"{name}_at"] for name in ("arrived", "started", "first_token", "ended")]
    assert stamps == sorted(stamps)
    assert (second["outcome"], second["rejected"]) == ("rejected", "queue_full")


async def test_what_a_gateway_with_two_workers_decided_replays(pair, tokenizer):
    a, b = pair.puppets["a"], pair.puppets["b"]
    b.script = lambda request, sequence: tokenizer.encode("two")
    setup = Setup(
        program="test",
        config=Config(),
        pages=10,
        model=a.info.model,
        max_model_len=a.info.max_model_len,
        worker=WorkerId("a"),
    )
    file = io.BytesIO()
    writer = DecisionLogWriter(file)
    writer.begin(setup)
    async with pair.serving(log_decision=writer) as service, client_of(service) as client:

        async def workers() -> None:
            await a.request()
            a.die()

        body = {"model": MODEL, "prompt": [5, 6, 7]}
        await asyncio.gather(client.post(TEXT, json=body), workers())
    run = read_decision_log(io.BytesIO(file.getvalue()))
    again = {BOOK: RequestBook(Chosen("a", "b"))}
    entries = list(run.entries)
    assert {entry.method for entry in entries} >= {"start", "heard", "observe"}
    assert list(replay(entries, again)) == []
    assert list(replay(entries, fresh_machines(setup))), "another router decides otherwise"
