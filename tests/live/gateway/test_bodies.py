"""How a body arrives: too long, too slowly, under a wrong length or a wrong name."""

import asyncio
import json

import pytest
from gateway_kit import chat, refused

from antiphon.live.gateway import body as body_module

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
JSON = {"content-type": "application/json"}
HEADER = b"Content-Type: application/json; charset=utf-8\r\n"


@pytest.fixture(autouse=True)
def nothing_may_reach_the_worker(puppet):
    yield
    assert puppet.requests == []


async def test_a_body_over_the_limit(client, config):
    big = b'{"model": "' + b"x" * config.max_body_bytes + b'"}'
    assert (await refused(client, CHAT, big, 413))["code"] == "request_too_large"


async def test_a_chunked_body_over_the_limit_is_refused_before_it_ends(client, config):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 4096
            yield b" " * 4096

    response = await client.post(CHAT, content=endless(), headers=JSON)
    assert response.status_code == 413
    assert sent <= config.max_body_bytes + 3 * 4096


async def test_a_lying_content_length(client):
    headers = {**JSON, "content-length": "9" * 30}
    response = await client.post(CHAT, content=b"{}", headers=headers)
    assert response.status_code == 413


@pytest.mark.parametrize(
    "media", [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize"])
async def test_a_body_that_is_not_called_json(client, path, media):
    headers = {} if media is None else {"content-type": media}
    response = await client.post(path, content=json.dumps(chat()), headers=headers)
    assert response.status_code == 415
    assert response.json()["error"]["param"] == "content-type"


async def test_a_body_that_trickles_in_is_408(url, monkeypatch):
    monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.05)
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        + HEADER
        + b"Content-Length: 100\r\n\r\n{"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()
    assert head.startswith(b"HTTP/1.1 408")


async def test_a_body_over_the_limit_on_a_real_socket(url, config):
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        + HEADER
        + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    piece = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    for _ in range(config.max_body_bytes // 0x4000 + 1):
        writer.write(piece)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()
    assert head.startswith(b"HTTP/1.1 413")
