"""Whatever one side says, the other goes on: with its other peers, and with the next stream."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_kit import WELCOME, Door, PuppetWorker, offer, port, request, until, worker_info

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.core.requests import SoleWorker
from antiphon.live.admin.status import worker_statuses
from antiphon.live.gateway import Gateway, Metrics, Ports, Served, State
from antiphon.live.gateway.auth import Tenant
from antiphon.live.gateway.intake import Call
from antiphon.testing.typed_values import values
from antiphon.text import Tokenizer
from antiphon.types import (
    Abort,
    Aborted,
    Admitted,
    Adopt,
    Dispatch,
    EventBatch,
    FinishReason,
    GrantTo,
    Hello,
    LeaseHeld,
    Logprobs,
    Offer,
    Preempted,
    Pulled,
    Rejected,
    RejectReason,
    Release,
    Renew,
    RequestId,
    RoleChanged,
    SamplingParams,
    SequenceEnded,
    Started,
    TokenGenerated,
    WorkerId,
    WorkerView,
)
from antiphon.wire import Kind, encode, pack_events, unpack_events

pytestmark = pytest.mark.timeout(120)

FROM_WORKER: dict[Kind, Any] = {
    Kind.REPORT: WorkerView,
    Kind.EVENTS: EventBatch,
    Kind.ADMITTED: Admitted,
    Kind.ABORTED: Aborted,
    Kind.LEASE_HELD: LeaseHeld,
    Kind.DONE: None,
}
FROM_GATEWAY: dict[Kind, Any] = {
    Kind.HEARTBEAT: None,
    Kind.DISPATCH: Dispatch,
    Kind.ADOPT: Adopt,
    Kind.ABORT: Abort,
    Kind.GRANT: GrantTo,
    Kind.RENEW: Renew,
    Kind.RELEASE: Release,
    Kind.SET_ROLE: RoleChanged,
}


batches = st.one_of(
    values(EventBatch),
    st.lists(st.one_of(values(TokenGenerated), values(Offer)), max_size=4).map(pack_events),
)


def addressed(message: object) -> object:
    """To the worker that hears it, lest it looks no further."""
    match message:
        case Dispatch() | Adopt() | Abort() | RoleChanged():
            return replace(message, worker=WorkerId("w0"))
        case Renew() | Release():
            return replace(message, owner=WorkerId("w0"))
    return message


@st.composite
def talk(draw: st.DrawFn, kinds: dict[Kind, Any]) -> bytes:
    """Messages that decode, with a little damage now and then."""
    said = bytearray()
    for kind in draw(st.lists(st.sampled_from(list(kinds)), max_size=5)):
        message = draw(batches if kind is Kind.EVENTS else values(kinds[kind]))
        said += encode(kind, addressed(message), draw(st.integers(0, 5)))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(said)))
        said[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=6))
    return bytes(said)


integers = st.one_of(
    st.integers(-2, 3), st.sampled_from((-(2**63), 2**31, 2**32, 2**63, 2**64 - 1, 49152))
)
seconds = st.one_of(st.sampled_from((0.0, -1.0, 1e300)), st.floats())
scores = st.builds(
    Logprobs, chosen=seconds, top=st.lists(st.tuples(integers, seconds), max_size=2).map(tuple)
)
OWN: dict[str, Any] = {"request": st.just("r"), "attempt": st.just(1)}
"""Facts about the request that the worker has: the gateway looks further at those."""
odd_events = st.one_of(
    st.builds(Started, **OWN, cached_tokens=integers, queued_s=seconds),
    st.builds(
        TokenGenerated,
        **OWN,
        sequence=st.one_of(st.just(0), integers),
        index=st.one_of(st.just(0), integers),
        token=integers,
        logprobs=st.one_of(st.none(), scores),
    ),
    st.builds(SequenceEnded, **OWN, sequence=integers, reason=st.sampled_from(FinishReason)),
    st.builds(Preempted, **OWN, sequence=integers),
    st.builds(
        Pulled,
        **OWN,
        pulled_tokens=integers,
        cached_tokens=integers,
        missing_tokens=integers,
        seconds=seconds,
        moved_bytes=integers,
    ),
    st.builds(lambda ttl_s: replace(offer(request()), owner="w1", ttl_s=ttl_s), seconds),
)
odd_views = st.builds(
    lambda counts, busy_s: replace(
        PuppetWorker(worker_info()).view(), busy_s_total=busy_s, **counts
    ),
    st.dictionaries(
        st.sampled_from(("running", "waiting", "held_pages", "total_pages", "steps_total")),
        integers,
        max_size=2,
    ),
    seconds,
)
odd_answers = st.one_of(
    st.builds(Admitted, request=st.just("r"), ahead=integers),
    st.builds(
        Rejected,
        request=st.just("r"),
        reason=st.sampled_from(RejectReason),
        message=st.just(""),
        retry_after_s=seconds,
    ),
)
odd_words = st.one_of(
    st.lists(odd_events, min_size=1, max_size=4).map(pack_events), odd_views, odd_answers
)


def told(word: EventBatch | WorkerView | Admitted | Rejected, name: str) -> bytes:
    """The frame of what a worker says of request `name`, the first that it was given."""
    match word:
        case EventBatch():
            events = [replace(event, request=RequestId(name)) for event in unpack_events(word)]
            return encode(Kind.EVENTS, pack_events(events))
        case WorkerView():
            return encode(Kind.REPORT, word)
        case Admitted():
            return encode(Kind.ADMITTED, replace(word, request=RequestId(name)), 1)
        case Rejected():
            return encode(Kind.REJECTED, replace(word, request=RequestId(name)), 1)


class Complaints:
    """What the loop was told that nobody caught."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: self.heard.append(what))


@asynccontextmanager
async def private_folder():
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(deadline=None, max_examples=100)
@given(said=talk(FROM_WORKER))
def test_no_worker_harms_a_gateway(said: bytes) -> None:
    async def run() -> None:
        complaints = Complaints()
        async with private_folder() as folder, Door(folder) as door:
            healthy = PuppetWorker(worker_info("w0"))
            async with port(healthy, door.path):
                await door.link(0)
                info = worker_info("w1")
                _, writer = await asyncio.open_unix_connection(door.path)
                writer.write(encode(Kind.HELLO, Hello(info, healthy.view())))
                writer.write(encode(Kind.REPORT, healthy.view()) + said)
                strange = await door.link(1)
                reading = asyncio.create_task(read(strange))
                adding = asyncio.create_task(strange.add(request("strange")))
                await asyncio.sleep(0)
                writer.write_eof()
                await until(lambda: "w1" not in door.socket.present)
                await asyncio.gather(reading, adding, return_exceptions=True)
                writer.close()
                assert isinstance(await door.links[0].add(request()), Admitted)
        assert complaints.heard == []

    asyncio.run(run())


async def read(link) -> None:
    async for _ in link.events():
        pass


@settings(deadline=None, max_examples=100)
@given(said=talk(FROM_GATEWAY))
def test_no_gateway_harms_a_worker(said: bytes) -> None:
    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)
        writer.write(encode(Kind.WELCOME, WELCOME) + said)
        writer.write_eof()
        await reader.read()
        writer.close()

    async def run() -> None:
        complaints = Complaints()
        async with private_folder() as folder:
            path = folder / "gateway.sock"
            worker = PuppetWorker(worker_info())
            server = await asyncio.start_unix_server(strange, path)
            async with port(worker, path) as serving:
                await until(lambda: bool(serving.lives.left))
                server.close()
                path.unlink()
                async with Door(folder) as door:
                    link = await door.link()
                    assert worker.running == {}
                    assert isinstance(await link.add(request()), Admitted)
                assert not serving.run.done()
        assert complaints.heard == []

    asyncio.run(run())


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(open_checkpoint(resolve("smollm2-135m")).tokenizer)


def gateway_for(worker: str, tokenizer: Tokenizer, metrics: Metrics) -> Gateway:
    info = worker_info(worker)
    return Gateway(
        SoleWorker(info.id),
        Served(model=info.model, max_model_len=info.max_model_len),
        tokenizer,
        metrics,
        Ports(clock=time.monotonic),
    )


@settings(deadline=None, max_examples=150)
@given(words=st.lists(odd_words, min_size=1, max_size=5))
def test_no_value_that_a_worker_says_ends_the_gateway(
    tokenizer: Tokenizer, words: Sequence[Any]
) -> None:
    """Well-formed, about its own request, and impossible: that worker is lost, and nobody else."""

    async def run() -> None:
        complaints = Complaints()
        async with private_folder() as folder, Door(folder) as door:
            metrics = Metrics("m")
            gateway = gateway_for("w1", tokenizer, metrics)
            running = asyncio.create_task(gateway.run())
            hello = Hello(worker_info("w1"), PuppetWorker(worker_info("w1")).view())
            _, writer = await asyncio.open_unix_connection(door.path)
            writer.write(encode(Kind.HELLO, hello) + encode(Kind.REPORT, hello.view))
            assert gateway.join(await door.link()) is None
            sampling = SamplingParams(max_tokens=4, logprobs=1)
            call = Call(
                id="c",
                prompts=[(1, 2, 3)],
                sampling=sampling,
                tenant=Tenant(),
                arrived_at=time.monotonic(),
                timeout_s=60.0,
            )
            reply = gateway.open(call)
            for word in words:
                writer.write(told(word, reply.requests[0]))
            writer.write_eof()
            while gateway.fleet.link(WorkerId("w1")) is not None and not running.done():
                gateway.fleet._watch()
                assert all(row.kv_used <= 1 for row in worker_statuses(gateway.fleet.members(), {}))
                metrics.render()
                await asyncio.sleep(0)
            gateway.cancel(reply)
            assert reply.over
            assert gateway.state is State.NO_WORKER
            assert not running.done()
            metrics.render()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            writer.close()
        assert complaints.heard == []

    asyncio.run(run())
