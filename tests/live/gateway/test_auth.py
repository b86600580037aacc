"""API keys: who gets in, what they may not learn of each other, and bad key files."""

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
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
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
