"""Wherever a law breaks, the gateway goes on with nothing: `run` ends, nobody waits for ever."""

import asyncio
import time
from collections.abc import Callable

import pytest
from gateway_kit import MODEL

from antiphon.core.requests import RequestBook, SoleWorker
from antiphon.errors import BugError, PeerError
from antiphon.live.gateway import Gateway, Metrics, Ports, Served, State
from antiphon.live.gateway.auth import Tenant
from antiphon.live.gateway.intake import Call
from antiphon.live.gateway.reply import Reply
from antiphon.types import SamplingParams, WorkerId


def call(id: str = "c") -> Call:
    return Call(
        id=id,
        prompts=[(1,)],
        sampling=SamplingParams(),
        tenant=Tenant(),
        arrived_at=time.monotonic(),
        timeout_s=600.0,
    )


def opens(gateway: Gateway, reply: Reply) -> None:
    gateway.open(call("d"))


def cancels(gateway: Gateway, reply: Reply) -> None:
    gateway.cancel(reply)


def closes(gateway: Gateway, reply: Reply) -> None:
    gateway.close(reply)


def empties(gateway: Gateway, reply: Reply) -> None:
    gateway.empty(WorkerId("w0"), 1.0)


def loses(gateway: Gateway, reply: Reply) -> None:
    link = gateway.fleet.link(WorkerId("w0"))
    assert link is not None
    gateway.fleet.lose(link, "for a test")


def waits(gateway: Gateway, reply: Reply) -> None:
    """A deadline comes: its timer has no caller but the loop."""
    asyncio.get_running_loop().call_soon(gateway._due)


@pytest.mark.parametrize(
    ("method", "enter"),
    [
        ("start", opens),
        ("cancel", cancels),
        ("cancel", closes),
        ("drain", empties),
        ("observe", loses),
        ("due", waits),
    ],
)
@pytest.mark.parametrize("error", [BugError("for a test"), KeyError("for a test")])
async def test_a_broken_law_ends_the_gateway(
    puppet, tokenizer, monkeypatch, method: str, enter: Callable, error: Exception
) -> None:
    info = puppet.info
    gateway = Gateway(
        SoleWorker(info.id),
        Served(model=info.model, max_model_len=info.max_model_len),
        tokenizer,
        Metrics(MODEL),
        Ports(clock=time.monotonic),
    )
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    running = asyncio.create_task(gateway.run())
    gateway.join(puppet)
    reply = gateway.open(call())
    await puppet.request()

    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(RequestBook, method, broken)
    if enter is waits:
        waits(gateway, reply)
    else:
        with pytest.raises(type(error), match="for a test"):
            enter(gateway, reply)
        assert gateway.state is State.UNHEALTHY
        with pytest.raises(PeerError, match="has stopped"):
            gateway.open(call("d"))
    with pytest.raises(type(error), match="for a test"):
        await asyncio.wait_for(running, 5)
    assert reply.error is not None
    assert reply.error.status == 500, "its caller would wait for ever"
    await asyncio.wait_for(reply.changed(), 5)


async def test_what_broke_before_it_ran_ends_it_at_once(puppet, tokenizer) -> None:
    info = puppet.info
    gateway = Gateway(
        SoleWorker(info.id),
        Served(model=info.model, max_model_len=info.max_model_len),
        tokenizer,
        Metrics(MODEL),
        Ports(clock=time.monotonic),
    )
    gateway.fail(BugError("for a test"))
    with pytest.raises(BugError, match="for a test"):
        await gateway.run()
