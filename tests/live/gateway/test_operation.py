"""Metrics, request ids, the API's description, and the last resort."""

import asyncio
import re

import pytest
from gateway_kit import MODEL
from prometheus_client.parser import text_string_to_metric_families

from antiphon import __version__
from antiphon.errors import BugError
from antiphon.live.gateway import State
from antiphon.live.gateway.metrics import Histogram
from antiphon.types import FinishReason, RejectReason

TEXT = "/v1/completions"


def samples(page: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(v for k, v in sorted(sample.labels.items()) if k != "model_name")): (
            sample.value
        )
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_metrics_tell_what_happened(client, puppet, tokenizer):
    words = tokenizer.encode("one two three")
    puppet.script = lambda request, sequence: words
    body = {"model": MODEL, "prompt": [5, 6, 7], "n": 2}
    assert (await client.post(TEXT, json=body)).status_code == 200
    assert (await client.post(TEXT, json={**body, "max_tokens": 1})).status_code == 200
    assert (await client.post(TEXT, json={**body, "n": 0})).status_code == 400
    puppet.reject = RejectReason.QUEUE_FULL
    assert (await client.post(TEXT, json=body)).status_code == 429
    page = await client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    seen = samples(page.text)
    output = 2 * len(words) + 2
    for name, labels, value in [
        ("vllm:num_requests_running", ("mixed", "w0"), 1),
        ("vllm:num_requests_waiting", ("mixed", "w0"), 2),
        ("vllm:kv_cache_usage_perc", ("mixed", "w0"), 0.3),
        ("vllm:prefix_cache_queries_total", ("mixed", "w0"), 100),
        ("vllm:prefix_cache_hits_total", ("mixed", "w0"), 40),
        ("vllm:prompt_tokens_total", (), 6),
        ("vllm:generation_tokens_total", (), output),
        ("vllm:time_to_first_token_seconds_count", (), 2),
        ("vllm:inter_token_latency_seconds_count", (), output - 4),
        ("vllm:e2e_request_latency_seconds_count", (), 2),
        ("vllm:request_queue_time_seconds_count", (), 2),
        ("vllm:request_success_total", ("stop",), 2),
        ("vllm:request_success_total", ("length",), 2),
        ("antiphon_requests_total", ("finished", ""), 2),
        ("antiphon_requests_total", ("rejected", "queue_full"), 1),
        ("antiphon_http_requests_total", (TEXT, "200"), 2),
        ("antiphon_http_requests_total", (TEXT, "400"), 1),
        ("antiphon_http_requests_total", (TEXT, "429"), 1),
        ("antiphon_late_events_total", ("unknown",), 0),
    ]:
        assert seen[name, labels] == pytest.approx(value), (name, labels)


@pytest.mark.parametrize(
    "reason, finished", [("stop", 1.0), ("error", 0.0)], ids=["finished", "failed"]
)
async def test_only_what_finished_has_a_whole_duration(client, puppet, reason, finished):
    asking = asyncio.create_task(
        client.post("/v1/completions", json={"model": MODEL, "prompt": "x"})
    )
    puppet.end(await puppet.request(), FinishReason(reason))
    await asking
    page = samples((await client.get("/metrics")).text)
    assert page["vllm:e2e_request_latency_seconds_count", ()] == finished
    assert page["vllm:prompt_tokens_total", ()] == 1.0


def test_a_histogram_counts_into_the_first_bucket_that_holds_the_value():
    histogram = Histogram((1.0, 2.5))
    for value in (0.5, 1.0, 1.5, 2.5, 99.0):
        histogram.observe(value)
    samples = histogram.family("name", "text", "m").samples
    buckets = {s.labels["le"]: s.value for s in samples if s.name == "name_bucket"}
    assert buckets == {"1.0": 2, "2.5": 4, "+Inf": 5}
    assert next(s.value for s in samples if s.name == "name_sum") == 104.5


async def test_the_version_says_what_bits_depend_on(client):
    found = (await client.get("/version")).json()
    assert found == {"version": __version__, "numerics": "script-v1"}


async def test_unknown_paths_make_no_new_series(client):
    for path in ("/a", "/b", "/c"):
        await client.get(path)
    seen = samples((await client.get("/metrics")).text)
    assert seen["antiphon_http_requests_total", ("unmatched", "404")] == 3


@pytest.mark.parametrize("given", ["abc", "0b5f-11.x:y/z+=@_", "x" * 128])
async def test_a_sane_request_id_is_echoed(client, given):
    response = await client.get("/health", headers={"x-request-id": given})
    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "ü", "<script>", 'a"b'])
async def test_any_other_request_id_is_replaced(client, given):
    response = await client.get("/health", headers={b"x-request-id": given.encode()})
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-request-id"])


async def test_two_requests_of_one_id_do_not_collide(client, puppet, tokenizer):
    puppet.script = lambda request, sequence: tokenizer.encode("x")
    body = {"model": MODEL, "prompt": "x"}
    headers = {"x-request-id": "same"}
    for _ in range(2):
        assert (await client.post(TEXT, json=body, headers=headers)).status_code == 200
    assert puppet.requests[0].id != puppet.requests[1].id


async def test_the_description_covers_every_body(client):
    schema = (await client.get("/openapi.json")).json()
    schemas = schema["components"]["schemas"]
    text = str(schema)
    for reference in set(re.findall(r"#/components/schemas/([^'\"]+)", text)):
        assert reference in schemas, reference
    for path in ("/v1/chat/completions", TEXT, "/tokenize", "/detokenize"):
        operation = schema["paths"][path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]
        assert operation["summary"]
    assert "temperature" in schemas["ChatBody"]["properties"]
    docs = await client.get("/docs")
    assert docs.status_code == 200
    assert "openapi.json" in docs.text


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models"])
async def test_head_says_what_get_says_without_a_body(client, path):
    head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")


async def test_the_bare_address_leads_to_the_docs(client):
    response = await client.get("/")
    assert response.is_redirect
    assert response.headers["location"] == "/docs"


async def test_the_docs_page_needs_no_other_host(client):
    page = (await client.get("/docs")).text
    assets = re.findall(r"(?:src|href)=\"([^\"]+)\"", page)
    assert any(asset.endswith(".js") for asset in assets)
    for asset in assets:
        assert asset.startswith("/"), asset
        assert (await client.get(asset)).status_code == 200, asset


async def test_an_exception_that_nobody_expected_leaks_nothing(
    client, service, caplog, monkeypatch
):
    def broken(*_: object):
        raise BugError("secret detail")

    monkeypatch.setattr(service.gateway, "open", broken)
    headers = {"x-request-id": "find-me"}
    body = {"model": MODEL, "prompt": "x"}
    response = await client.post(TEXT, json=body, headers=headers)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text
    assert "find-me" in caplog.text
    while service.gateway.state is State.READY:
        await asyncio.sleep(0)
    assert (await client.get("/health")).status_code == 503, "state can't be trusted after a bug"
