"""Every kind of wrong request: its status, and the name of the field that is at fault."""

import json
import math

import pytest
from gateway_kit import MODEL, chat, refused

from antiphon.live.gateway.body import parse
from antiphon.live.gateway.chat_schema import MAX_MESSAGES, ChatBody

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def nothing_may_reach_the_worker(puppet):
    yield
    assert puppet.requests == []


def text(**fields) -> dict:
    return {"model": MODEL, "prompt": "hi", **fields}


NUMBERS = {
    "temperature": ["1", -0.1, 2.1, 1e300, True, [], {}],
    "top_p": ["1", 0, -1, 1.1, False],
    "top_k": ["1", -2, 10**6, 1.5, True],
    "min_p": [-0.1, 1.1, "0"],
    "presence_penalty": [-2.1, 2.1, "0"],
    "frequency_penalty": [-2.1, 2.1, "0"],
    "repetition_penalty": [0, -1, 3, "1"],
    "n": [0, -1, 10**4, "1", 1.0, 1.5, True, 10**30],
    "max_tokens": [0, -1, 10**12, 10**30, "5", 1.5, True],
    "min_tokens": [-1, "5", 1.5, 10**12],
    "seed": ["1", 1.5, 2**64, -(2**64), True],
    "priority": ["1", 1.5, -1, 101, 10**9],
    "timeout": [0, -1, "1", True],
    "stream": ["true", 1],
    "ignore_eos": ["true", 1],
    "stop_token_ids": [5, ["5"], [1.5], [-1], [10**9], [True], list(range(2000))],
    "logit_bias": [
        [],
        "x",
        {"a": 1},
        {"1": "x"},
        {"-1": 1},
        {"1": 101},
        {"1": -101},
        {"10000000": 1},
    ],
    "stop": [5, [5], [""], "", ["a"] * 17, {}, ["x" * 5000]],
    "user": [5, {}],
    "metadata": [5, "x"],
    "stream_options": [True, {"include_usage": "yes"}, {"unknown": True}],
    "antiphon": [1, {"unknown": 1}, {"priority": "1"}, {"session": 1}, {"session": "x" * 1000}],
    "model": [5, [], "x" * 1000],
}


@pytest.mark.parametrize("path, make", [(CHAT, chat), (TEXT, text)], ids=["chat", "completions"])
@pytest.mark.parametrize(
    "field, value",
    [(field, value) for field, values in NUMBERS.items() for value in values],
    ids=lambda value: str(value)[:24],
)
async def test_fields_of_wrong_type_or_range(client, path, make, field, value):
    error = await refused(client, path, make(**{field: value}))
    assert error["param"].split(".")[0].split("[")[0] == field
    assert field in error["message"]


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity", "1e999", "1e99999999999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "n", "metadata"])
async def test_numbers_that_json_does_not_have(client, name, field):
    raw = json.dumps(chat(**{field: 12345})).replace("12345", name)
    assert (await refused(client, CHAT, raw))["code"] == "invalid_json"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"not json",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "\\udc00\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"n": ' + b"9" * 100_000 + b"}",
        b'{"model": "a"} trailing',
    ],
    ids=lambda raw: repr(raw[:20]),
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
async def test_malformed_json(client, path, raw):
    assert (await refused(client, path, raw))["code"] == "invalid_json"


@pytest.mark.parametrize(
    "messages, param",
    [
        ([], "messages"),
        ("hi", "messages"),
        ({}, "messages"),
        ([5], "messages[0]"),
        ([{}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": "function", "content": "x"}], "messages[0].role"),
        ([{"role": 1, "content": "x"}], "messages[0].role"),
        ([*HI, {"role": "user", "content": None}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}],
            "messages[0].content[1].type",
        ),
        ([{"role": "user", "content": "x", "colour": "red"}], "messages[0].colour"),
        (
            [{"role": "assistant", "content": "x", "tool_calls": [{"id": "a"}]}],
            "messages[0].tool_calls",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
async def test_messages(client, messages, param):
    assert (await refused(client, CHAT, chat(messages=messages)))["param"] == param
    body = {"messages": messages}
    assert (await refused(client, "/tokenize", body))["param"] == param


@pytest.mark.parametrize(
    "prompt, param",
    [
        ("", "prompt"),
        ([], "prompt"),
        ([""], "prompt"),
        (["a", ""], "prompt"),
        ([[]], "prompt[0]"),
        ([[1], []], "prompt[1]"),
        (5, "prompt"),
        ({}, "prompt"),
        (True, "prompt"),
        ([1, "a"], "prompt[1]"),
        (["a", 1], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([[1], ["a"]], "prompt[1][0]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([-1], "prompt[0]"),
        ([10**9], "prompt[0]"),
        ([1, 49152], "prompt[1]"),
        ([[1], [2, 10**30]], "prompt[1][1]"),
        (["a"] * 300, "prompt"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_prompts(client, prompt, param):
    assert (await refused(client, TEXT, text(prompt=prompt)))["param"] == param


@pytest.mark.parametrize(
    "field, value",
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "auto"),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("reasoning_effort", "high"),
        ("prompt_logprobs", 1),
        ("guided_json", {}),
        ("guided_regex", "a"),
        ("structured_outputs", {"json": {}}),
        ("use_beam_search", True),
        ("cache_salt", "mine"),
        ("chat_template", "{{ x }}"),
    ],
)
@pytest.mark.parametrize("path, make", [(CHAT, chat), (TEXT, text)], ids=["chat", "completions"])
async def test_what_we_do_not_have_is_refused_by_name(client, path, make, field, value):
    error = await refused(client, path, make(**{field: value}))
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")
    assert field in error["message"]


@pytest.mark.parametrize("field, value", [("best_of", 3), ("best_of", "1"), ("suffix", "x")])
async def test_completions_only_fields(client, field, value):
    error = await refused(client, TEXT, text(**{field: value}))
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


@pytest.mark.parametrize(
    "field, near",
    [
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("stopp", "stop"),
        ("xyzzy", None),
    ],
)
async def test_an_unknown_field_names_the_nearest(client, field, near):
    error = await refused(client, CHAT, chat(**{field: 1}))
    assert (error["param"], error["code"]) == (field, "unknown_parameter")
    assert near is None or repr(near) in error["message"]


@pytest.mark.parametrize(
    "body, param",
    [
        (chat(max_tokens=5, max_completion_tokens=6), "max_completion_tokens"),
        (chat(max_completion_tokens=0), "max_completion_tokens"),
        (chat(max_completion_tokens=10**6), "max_completion_tokens"),
        (chat(top_logprobs=2), "top_logprobs"),
        (chat(stream_options={"include_usage": True}), "stream_options"),
        (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
        (chat(logprobs=True, top_logprobs=-1), "top_logprobs"),
        (chat(logprobs=1), "logprobs"),
        (chat(priority=1, antiphon={"priority": 2}), "antiphon.priority"),
        (chat(min_tokens=6, max_tokens=5), "min_tokens"),
        ({"messages": HI}, "model"),
        ({"model": MODEL}, "messages"),
        ({"model": None, "messages": HI}, "model"),
        (chat(messages=[{"role": "user", "content": "word " * 9000}]), "messages"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_chat_combinations(client, body, param):
    assert (await refused(client, CHAT, body))["param"] == param


@pytest.mark.parametrize(
    "body, param",
    [
        (text(echo=True, logprobs=1), "echo"),
        (text(logprobs=21), "logprobs"),
        (text(stream_options={}), "stream_options"),
        (text(logprobs=True), "logprobs"),
        (text(logprobs=-1), "logprobs"),
        (text(prompt=["a"] * 100, n=100), "n"),
        ({"model": MODEL}, "prompt"),
        (text(prompt=None), "prompt"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_completion_combinations(client, body, param):
    assert (await refused(client, TEXT, body))["param"] == param


@pytest.mark.parametrize("prompt", ["word " * 9000, [5] * 8192, ["short", "word " * 9000]])
async def test_a_prompt_longer_than_the_context(client, prompt):
    error = await refused(client, TEXT, text(prompt=prompt))
    assert (error["param"], error["code"]) == ("prompt", "context_length_exceeded")


async def test_prompt_and_output_together_longer_than_the_context(client):
    error = await refused(client, TEXT, text(prompt=[5] * 8000, max_tokens=500))
    assert (error["param"], error["code"]) == ("max_tokens", "context_length_exceeded")


@pytest.mark.parametrize("path, make", [(CHAT, chat), (TEXT, text)], ids=["chat", "completions"])
async def test_an_unknown_model(client, path, make):
    error = await refused(client, path, make(model="gpt-5"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    response = await client.get("/v1/models/gpt-5")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("header", ["x-slo-ttft-ms", "x-slo-tpot-ms", "x-request-timeout-s"])
@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "nan", "inf", "1e400"])
async def test_headers(client, header, value):
    response = await client.post(CHAT, json=chat(), headers={header: value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == header


@pytest.mark.parametrize(
    "path, body, param",
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HI}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "a", "return_token_strs": 1}, "return_token_strs"),
        ("/tokenize", {"promt": "a"}, "promt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, "2"]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, 10**6]}, "tokens[1]"),
        ("/detokenize", {"tokens": [10**30]}, "tokens[0]"),
    ],
)
async def test_tokenize_and_detokenize(client, path, body, param):
    assert (await refused(client, path, body))["param"] == param


async def test_unknown_paths_and_methods(client):
    for method, path, status in [
        ("GET", "/nope", 404),
        ("POST", "/v1", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
    ]:
        response = await client.request(method, path)
        assert response.status_code == status
        assert response.json()["error"]["type"] == "invalid_request_error"


def test_the_table_has_no_value_that_json_would_change():
    for values in NUMBERS.values():
        assert not any(isinstance(v, float) and not math.isfinite(v) for v in values)


PART = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    "field, value",
    [
        ("messages", [{"role": "user", "content": [PART] * 1024}] * 8),
        ("messages", [{"role": "user", "content": [{}] * 1000}] * 30),
        ("messages", [{**HI[0], **{f"k{i}": 1 for i in range(1025)}}]),
        ("messages", [[]] * 20_000),
        ("antiphon", {f"k{i}": 1 for i in range(1025)}),
        ("stream_options", {f"k{i}": 1 for i in range(1025)}),
        ("logit_bias", {str(i): "x" for i in range(1025)}),
    ],
    ids=["parts", "bad-parts", "fields", "lists", "antiphon", "stream_options", "logit_bias"],
)
async def test_more_parts_than_can_be_looked_at_are_refused_before_any_is(
    client, monkeypatch, field, value
):
    monkeypatch.setattr(ChatBody, "model_validate", None)
    error = await refused(client, CHAT, chat(**{field: value}))
    assert error["param"] == field
    assert "at most 1024" in error["message"] or "more than 16384 parts" in error["message"]


def test_as_many_messages_of_one_part_as_a_call_may_have():
    messages = [{"role": "user", "content": [PART]}] * MAX_MESSAGES
    body = parse(ChatBody, json.dumps({"model": MODEL, "messages": messages}).encode())
    assert len(body.messages) == MAX_MESSAGES


@pytest.mark.parametrize("priority", [-1, 101])
async def test_nobody_gets_ahead_of_the_default_priority(client, priority):
    error = await refused(client, CHAT, chat(antiphon={"priority": priority}))
    assert error["param"] == "antiphon.priority"
    assert "from 0 to 100" in error["message"]
