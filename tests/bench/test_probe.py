"""What is found out about a server before it is put under load."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from aiohttp import web

from antiphon.bench import Server, probe
from antiphon.errors import PeerError
from antiphon.testing.scripted_calls import Behaviour, Ending, Script
from antiphon.testing.scripted_server import ScriptedServer, scripted_server

STRICT = "strict"


@pytest.fixture(scope="module")
def single() -> Iterator[ScriptedServer]:
    refuses = frozenset({"ignore_eos", "stream_options", "max_tokens"})
    with scripted_server(Script(models={STRICT: Behaviour(refuses=refuses)})) as server:
        yield server


@pytest.fixture(scope="module")
def several() -> Iterator[ScriptedServer]:
    endings = (Ending.WHOLE, Ending.STATUS_401, Ending.STATUS_400, Ending.HALF, Ending.NOT_HTTP)
    models = {ending.value: Behaviour(ending=ending) for ending in endings}
    with scripted_server(Script(models=models)) as server:
        yield server


async def test_the_only_model_and_the_fields_it_refuses(single: ScriptedServer) -> None:
    probed = await probe(Server(url=single.url))
    assert probed.server.model == STRICT
    assert probed.server.without == {"ignore_eos", "stream_options", "max_tokens"}
    assert len(probed.notes) == 3
    assert all("refuses" in note for note in probed.notes)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_root_is_found(several: ScriptedServer, path: str) -> None:
    probed = await probe(Server(url=several.url + path, model=Ending.WHOLE))
    assert probed.server.root == several.url + "/v1"
    assert probed.server.without == frozenset()
    assert probed.notes == ()


async def serving(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_a_root_that_does_not_end_in_v1() -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def call(_: web.Request) -> web.Response:
        text = 'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/v1beta/openai/models", models)
    app.router.add_post("/v1beta/openai/chat/completions", call)
    runner, url = await serving(app)
    try:
        probed = await probe(Server(url=f"{url}/v1beta/openai/"))
    finally:
        await runner.cleanup()
    assert probed.server.root == f"{url}/v1beta/openai"
    assert probed.server.model == "m"


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        ("", "choose one"),
        ("none-such", "--model"),
        (Ending.STATUS_401, "--api-key"),
        (Ending.STATUS_400, "scripted 400"),
        (Ending.HALF, "cut_short"),
        (Ending.NOT_HTTP, "garbage"),
    ],
)
async def test_a_call_that_can_not_work(several: ScriptedServer, model: str, remedy: str) -> None:
    with pytest.raises(PeerError, match=remedy):
        await probe(Server(url=several.url, model=model))


async def test_nobody_listens() -> None:
    with pytest.raises(PeerError, match="is the server running") as refused:
        await probe(Server(url="http://127.0.0.1:1"))
    assert "(Connection refused)" in str(refused.value)
    with pytest.raises(PeerError, match="is the server running") as refused:
        await probe(Server(url="https://127.0.0.1:1"))
    assert "ssl" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "page", "remedy"),
    [
        (401, "{}", "--api-key"),
        (403, "{}", "--api-key"),
        (404, "nothing", "URL's path"),
        (302, "", "http://elsewhere"),
        (500, "sorry", "500: sorry"),
        (200, "<html>", "something else"),
        (200, '{"data": 7}', "something else"),
        (200, "[" * 100_000, "something else"),
        (200, '{"data": []}', "no model"),
        (200, '{"data": [{"id": "a"}, {"id": "b"}]}', "2 models: choose one .*: a, b"),
    ],
)
async def test_a_list_of_models_that_is_none(status: int, page: str, remedy: str) -> None:
    async def models(_: web.Request) -> web.Response:
        headers = {"location": "http://elsewhere"} if status == 302 else {}
        return web.Response(status=status, text=page, headers=headers)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner, url = await serving(app)
    try:
        with pytest.raises(PeerError, match=remedy):
            await probe(Server(url=url))
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00" * 64, b""])
async def test_it_does_not_speak_http(said: bytes) -> None:
    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(hello, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerError):
            await probe(Server(url=f"http://127.0.0.1:{port}"))


async def test_it_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PeerError, match=r"within 0\.2 s"):
            await probe(Server(url=url), timeout_s=0.2)
