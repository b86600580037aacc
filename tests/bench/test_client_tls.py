"""Servers behind TLS: trusted, not trusted, and not asked for trust."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from antiphon.bench import Client, Server, probe
from antiphon.errors import PeerError
from antiphon.types import CallError
from antiphon.workload import Ask

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="makes a certificate")
ASK = Ask(number=0, text="hi", max_tokens=4, temperature=0.0, seed=1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of `localhost`, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    both = (folder / "key.pem").read_text() + (folder / "certificate.pem").read_text()
    (folder / "both.pem").write_text(both)
    return folder / "both.pem"


@asynccontextmanager
async def serving(certificate: Path) -> AsyncIterator[str]:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def call(_: web.Request) -> web.Response:
        text = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", call)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    try:
        yield f"https://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_nobody_vouches_for_it(certificate: Path) -> None:
    async with serving(certificate) as url, Client(Server(url=url, model="m")) as client:
        answer = await client.send(ASK)
        with pytest.raises(PeerError, match="certificate") as refused:
            await probe(Server(url=url))
    assert "--insecure" in str(refused.value)
    assert "self" in str(refused.value)
    assert "Error(" not in str(refused.value)
    assert answer.failure is CallError.UNREACHABLE
    assert "CERTIFICATE_VERIFY_FAILED" in answer.error


async def test_it_is_not_asked(certificate: Path) -> None:
    async with serving(certificate) as url:
        probed = await probe(Server(url=url, verify_tls=False))
        async with Client(probed.server) as client:
            answer = await client.send(ASK)
    assert answer.ok


async def test_its_authority_is_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(certificate) as url:
        probed = await probe(Server(url=url))
        async with Client(probed.server) as client:
            answers = [await client.send(ASK) for _ in range(3)]
    assert all(answer.ok for answer in answers)
