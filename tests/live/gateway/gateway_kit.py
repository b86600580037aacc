"""What the gateway's tests share: a running service, real HTTP, and a reader of event streams."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import uvicorn

from antiphon.core.requests import SoleWorker
from antiphon.live.gateway import Gateway, Metrics, Ports, Prompts, Served, Service
from antiphon.types import HttpConfig

MODEL = "scripted"


def events_of(stream: str) -> list[dict]:
    """The JSON events of a finished event stream, which must end in [DONE]."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line[:5] == "data:"]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@contextlib.asynccontextmanager
async def serving(
    link, tokenizer, template, config: HttpConfig, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Service]:
    """A service with one worker, whose gateway runs."""
    router = SoleWorker(link.info.id)
    async with serving_fleet([link], router, tokenizer, template, config, clock) as service:
        yield service


@contextlib.asynccontextmanager
async def serving_fleet(
    links,
    router,
    tokenizer,
    template,
    config: HttpConfig,
    clock: Callable[[], float] = time.monotonic,
    **ports,
) -> AsyncIterator[Service]:
    """A service whose gateway runs, with a worker for each link."""
    info = links[0].info
    served = Served(model=info.model, max_model_len=info.max_model_len)
    metrics = Metrics(MODEL)
    gateway = Gateway(router, served, tokenizer, metrics, Ports(clock=clock, **ports))
    watch = asyncio.create_task(gateway.run())
    for link in links:
        assert gateway.join(link) is None
    try:
        yield Service(
            gateway=gateway,
            prompts=Prompts(tokenizer, template),
            metrics=metrics,
            served=served,
            served_name=MODEL,
            config=config,
            clock=clock,
            created=1,
        )
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


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


def chat(**fields: Any) -> dict[str, Any]:
    """A call's body, with `fields` over it."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}


async def refused(client: httpx.AsyncClient, path: str, body: Any, status: int = 400) -> dict:
    """The error object of a call that is refused."""
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    headers = {"content-type": "application/json"}
    response = await client.post(path, content=content, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error
