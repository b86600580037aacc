"""What goes onto the wire, and what can be a server."""

import json

import pytest

from antiphon.bench import LoadLimits, Server
from antiphon.bench.call_body import call_body, call_bytes
from antiphon.errors import UsageError
from antiphon.workload import Api, Ask, Message

ASK = Ask(number=0, text="hi", max_tokens=4, temperature=0.0, seed=1)
HISTORY = (Message("system", ("Be ", "brief.")), Message("assistant", ("Yes.",)))


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, "/v1/chat/completions"),
        ("http://h:8000/", "h", 8000, "/v1/chat/completions"),
        ("http://h/v1", "h", 80, "/v1/chat/completions"),
        ("https://h/llm/v1/", "h", 443, "/llm/v1/chat/completions"),
        ("https://h/llm", "h", 443, "/llm/v1/chat/completions"),
        ("http://[::1]:80", "::1", 80, "/v1/chat/completions"),
    ],
)
def test_a_url_with_or_without_the_root(url: str, host: str, port: int, path: str) -> None:
    server = Server(url=url)
    assert (server.host, server.port, server.path(Api.CHAT)) == (host, port, path)


@pytest.mark.parametrize(
    "url", ["", "h:8000", "ftp://h", "http://", "http://h:99999", "http://h?q=1", "http://u:p@h"]
)
def test_what_is_no_server(url: str) -> None:
    with pytest.raises(UsageError):
        Server(url=url)


def test_headers_that_would_be_two() -> None:
    with pytest.raises(UsageError, match="x-a"):
        Server(url="http://h", extra_headers={"x-a": "1\r\nx-b: 2"})
    with pytest.raises(UsageError, match="Authorization"):
        Server(url="http://h", api_key="secret\n")


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Server(url="http://h", api_key="secret"))


@pytest.mark.parametrize("field", ["timeout_s", "drain_s", "max_open", "max_event_bytes"])
def test_limits_name_what_is_wrong(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        LoadLimits(**{field: -1})
    if field != "max_open":
        with pytest.raises(UsageError, match=field):
            LoadLimits(**{field: float("nan")})


def test_a_chat_with_history() -> None:
    body = call_body(Server(url="http://h", model="m"), ASK, HISTORY)
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "hi"},
        ],
        "max_tokens": 4,
        "temperature": 0.0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_completion_of_another_model() -> None:
    ask = Ask(
        number=0,
        text="hi",
        max_tokens=4,
        temperature=0.0,
        seed=1,
        api=Api.COMPLETION,
        model="other",
        ignore_eos=True,
        stream=False,
    )
    body = call_body(Server(url="http://h", model="m"), ask, HISTORY)
    assert body["prompt"] == "Be brief.\n\nYes.\n\nhi"
    assert body["model"] == "other"
    assert body["ignore_eos"] is True
    assert "messages" not in body
    assert "stream" not in body


def test_fields_that_are_refused_and_others_that_are_wanted() -> None:
    server = Server(
        url="http://h",
        without=frozenset({"max_tokens", "stream_options", "seed"}),
        extra_body={"temperature": 1.5, "top_k": 3},
    )
    body = call_body(server, ASK)
    assert body["max_completion_tokens"] == 4
    assert not {"max_tokens", "stream_options", "seed"} & body.keys()
    assert (body["temperature"], body["top_k"]) == (1.5, 3)


def test_the_call_as_bytes() -> None:
    server = Server(
        url="http://[::1]:80/x", model="m", api_key="k", extra_headers={"x-slo-ttft-ms": "500"}
    )
    head, _, body = call_bytes(server, ASK).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /x/v1/chat/completions HTTP/1.1"
    assert "Host: [::1]:80" in lines
    assert "Accept-Encoding: identity" in lines
    assert "Authorization: Bearer k" in lines
    assert "x-slo-ttft-ms: 500" in lines
    assert f"Content-Length: {len(body)}" in lines
    assert json.loads(body)["model"] == "m"
