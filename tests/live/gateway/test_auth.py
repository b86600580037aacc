"""API keys: who gets in, what they may not learn of each other, and bad key files."""

import asyncio
import logging
from dataclasses import replace

import httpx
import pytest
from gateway_kit import MODEL

from antiphon.errors import ClientError, ConfigError
from antiphon.live.gateway import Keyring, create_app
from antiphon.live.gateway.auth import ANYONE

ALICE, BOB = "sk-alice", "sk-bob"


@pytest.fixture
def keys() -> Keyring:
    return Keyring((ALICE, BOB))


def key_file(tmp_path, text: str, mode: int = 0o600):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer sk-alic", "Bearer sk-alicee", "Basic sk-alice",
     "sk-alice", "Bearer SK-ALICE", "Bearer sk-alice sk-bob", "Bearer \xff\xfe"],
)  # fmt: skip
@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/nope"),
    ],
)
async def test_no_or_a_wrong_key(client, header, method, path):
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    response = await client.request(method, path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert ALICE not in response.text
    assert "x-request-id" in response.headers


@pytest.mark.parametrize(
    "path",
    ["/health", "/ready", "/version", "/docs", "/docs-assets/swagger-ui.css", "/openapi.json"],
)
async def test_what_needs_no_key(client, path):
    assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_each_key_opens_and_has_its_own_cache(client, puppet, tokenizer, scheme):
    puppet.script = lambda request, sequence: tokenizer.encode("x")
    body = {"model": MODEL, "prompt": "same"}
    for key in (ALICE, BOB, ALICE):
        headers = {"authorization": f"{scheme} {key}"}
        response = await client.post("/v1/completions", json=body, headers=headers)
        assert response.status_code == 200
    alice, bob, again = (request.tenant_salt for request in puppet.requests)
    assert alice == again != bob
    assert len(alice) == 32
    assert ALICE.encode() not in alice


async def test_without_keys_there_is_one_tenant_without_salt(service, puppet, tokenizer):
    puppet.script = lambda request, sequence: tokenizer.encode("x")
    transport = httpx.ASGITransport(create_app(service, Keyring()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.post("/v1/completions", json={"model": MODEL, "prompt": "x"})
    assert puppet.requests[0].tenant_salt == b""


def test_a_key_file(tmp_path):
    text = f"# the team\n\n  {ALICE}  \n{BOB}\n#{'x' * 10}\n{BOB}\n"
    ring = Keyring.from_file(key_file(tmp_path, text))
    assert len(ring) == 2
    assert ring.tenant(f"Bearer {ALICE}") != ring.tenant(f"Bearer {BOB}")
    with pytest.raises(ClientError):
        ring.tenant("Bearer # the team")


@pytest.mark.parametrize(
    "text", ["", "\n \n", "# only a comment\n", "two words\n", "ключ\n", "a" * 600]
)
def test_key_files_that_are_refused(tmp_path, text):
    path = key_file(tmp_path, text)
    with pytest.raises(ConfigError, match=str(path)):
        Keyring.from_file(path)


def test_key_files_that_can_not_be_read(tmp_path):
    with pytest.raises(ConfigError, match="missing"):
        Keyring.from_file(tmp_path / "missing")
    with pytest.raises(ConfigError):
        Keyring.from_file(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        Keyring.from_file(binary)


@pytest.mark.parametrize("mode, warned", [(0o600, False), (0o640, True), (0o644, True)])
def test_a_key_file_open_to_others_is_warned_about(tmp_path, caplog, mode, warned):
    with caplog.at_level(logging.WARNING):
        Keyring.from_file(key_file(tmp_path, f"{ALICE}\n", mode))
    assert bool(caplog.records) is warned
    assert ALICE not in caplog.text


def test_an_empty_keyring_lets_anyone_in():
    assert Keyring().tenant(None) is ANYONE
    assert replace(ANYONE) == ANYONE


LOCAL = [
    "localhost",
    "localhost:8000",
    "LOCALHOST.",
    "127.0.0.1",
    "127.1.2.3:80",
    "[::1]",
    "[::1]:8",
]
FOREIGN = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000", "10.0.0.1",
           "evil.example#localhost", "[::2]:80", "localhost@evil.example", "\xff"]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/docs"])
@pytest.mark.parametrize("host", [*LOCAL, ""])
async def test_without_keys_this_machine_may_be_named(service, host, path):
    transport = httpx.ASGITransport(create_app(service, Keyring()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get(path, headers={"host": host})
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/metrics", "/nope"])
@pytest.mark.parametrize("host", FOREIGN)
async def test_without_keys_no_other_host_may_be_named(service, host, path):
    """A web page whose name points to loopback must not read what this server says."""
    transport = httpx.ASGITransport(create_app(service, Keyring()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get(path, headers={b"host": host.encode("latin-1")})
    assert response.status_code == 421
    assert response.json()["error"]["code"] == "unknown_host"
    assert "--api-key-file" in response.json()["error"]["message"]


async def test_with_keys_any_host_may_be_named(client):
    headers = {"host": "models.example", "authorization": f"Bearer {ALICE}"}
    assert (await client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_has_a_bounded_number_of_calls_open(puppet, service, keys, stream):
    limited = replace(service, config=replace(service.config, max_streams_per_key=2))
    transport = httpx.ASGITransport(create_app(limited, keys))
    body = {"model": MODEL, "prompt": ["a", "b"], "stream": stream}

    async def ask(key: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post("/v1/completions", json=body, headers=headers)

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asking = [asyncio.create_task(ask(ALICE)) for _ in range(2)]
        await puppet.request(3)
        refused = await ask(ALICE)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "too_many_streams"
        asking.append(asyncio.create_task(ask(BOB)))
        await puppet.request(5)
        assert len(puppet.requests) == 6
        for request in puppet.requests:
            puppet.end(request)
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}
        again = asyncio.create_task(ask(ALICE))
        for request in (await puppet.request(6), await puppet.request(7)):
            puppet.end(request)
        assert (await again).status_code == 200
        assert service.gateway.open_calls(keys.tenant(f"Bearer {ALICE}")) == 0


async def test_without_keys_there_is_no_such_bound(puppet, service):
    limited = replace(service, config=replace(service.config, max_streams_per_key=1))
    transport = httpx.ASGITransport(create_app(limited, Keyring()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        body = {"model": MODEL, "prompt": "a"}
        asking = [asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(2)]
        for number in range(2):
            puppet.end(await puppet.request(number))
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}


def test_each_of_ten_thousand_keys_is_found():
    keys = Keyring(tuple(f"sk-{number}" for number in range(10_000)))
    assert len({keys.tenant(f"Bearer sk-{number}") for number in range(10_000)}) == 10_000
    with pytest.raises(ClientError):
        keys.tenant("Bearer sk-10000")


def test_a_tenant_keeps_its_salt_over_restarts():
    assert Keyring(("a", "b")).tenant("Bearer a") == Keyring(("a",)).tenant("Bearer a")
