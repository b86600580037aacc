"""A worker that computes while the last layers of what it fetches are held back by the test."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from link_kit import until
from scripted_store import ScriptedStore
from store_worker import (
    BLOCK,
    StoreWorker,
    loaded,
    prompt,
    request,
    said_alone,
    store_worker,
    tiny_model,
)

from antiphon.core.scheduler import receiving
from antiphon.live import store_fetch
from antiphon.live.layer_gates import LayerWait
from antiphon.store.transfer import MappedRegion
from antiphon.types import (
    AttemptFailed,
    Fetched,
    KvShape,
    SequenceEnded,
    Started,
    TokenGenerated,
)

pytestmark = pytest.mark.timeout(120)
BLOCKS = 5
PROMPT = prompt(BLOCKS)
KNOWN = BLOCKS * BLOCK
ASKED = request("r", PROMPT)


class Held:
    """The last layers of each fetch come when the test says so."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let = threading.Event()

    def release(self) -> None:
        self.let.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Every copy is a long one, and every step begins as early as it can."""
    held, pull_part = Held(), MappedRegion.pull_part

    def slow(self, pages, part):
        if part.last:
            held.reached.set()
            assert held.let.wait(60)
        return pull_part(self, pages, part)

    monkeypatch.setattr(MappedRegion, "pull_part", slow)
    monkeypatch.setattr(store_fetch, "LONG_COPY_S", 0.0)
    monkeypatch.setattr(receiving, "may_begin", lambda arrival, step_s: arrival.here > 0)
    monkeypatch.setattr(receiving, "MOST_STALL_S", 60.0)
    yield held
    held.release()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def shape(model: Path) -> KvShape:
    region = loaded(model).region
    assert region is not None
    return region.shape


@pytest.fixture(scope="module")
def expected(model: Path) -> tuple[int, ...]:
    return asyncio.run(said_alone(model, ASKED))


@pytest.fixture
async def store(model: Path, shape: KvShape) -> AsyncIterator[ScriptedStore]:
    """It has all blocks of the prompt."""
    model.chmod(0o700)
    async with ScriptedStore(model, shape) as one:
        async with store_worker(model, "earlier") as side:
            await until(lambda: side.connected)
            await side.ask(request("e", PROMPT))
            await until(lambda: len(one.kept) >= BLOCKS)
            await side.rest()
        one.puts.clear()
        yield one


async def begun(side: StoreWorker, held: Held) -> None:
    """The request's step has begun, and its last layers are held back."""
    await until(lambda: side.connected)
    await side.ask(request("warm-up", prompt(1, seed=9)[:20]))
    await side.worker.add(ASKED, fetch=KNOWN)
    await side.until(lambda: bool(side.of(ASKED, Started)))
    await until(held.reached.is_set)
    assert not side.of(ASKED, Fetched)


async def test_it_begins_before_the_last_layers_and_says_the_same(
    model: Path, store: ScriptedStore, held: Held, expected: tuple[int, ...]
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        assert side.started(ASKED).stored_tokens == KNOWN
        assert side.worker.view().pulling == 1
        held.release()
        assert await side.answer(ASKED) == (expected,)
        first = side.of(ASKED, (Fetched, TokenGenerated))[0]
        assert isinstance(first, Fetched) and first.missing_tokens == 0
        put = [block.key for one in store.puts for block in one.blocks]
        assert not set(put) & set(store.asked[-1].keys), "what came from there is not put again"
        assert await side.ask(request("again", PROMPT)) == (expected,)
        assert side.started(request("again", PROMPT)).cached_tokens == KNOWN
        await side.rest()


async def test_a_page_that_changes_meanwhile_is_computed_and_the_text_is_the_same(
    model: Path, store: ScriptedStore, held: Held, expected: tuple[int, ...]
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        third = list(store.kept.values())[2]
        store.region.content.reshape(store.shape.pages, -1)[third[0].page][-1] ^= 1
        held.release()
        assert await side.answer(ASKED) == (expected,)
        fetched = side.fetched(ASKED)
        assert (fetched.fetched_tokens, fetched.missing_tokens) == (2 * BLOCK, 3 * BLOCK)
        assert await side.ask(request("again", PROMPT)) == (expected,)
        await side.rest()


async def test_layers_that_are_late_hold_nobody_up(
    model: Path,
    store: ScriptedStore,
    held: Held,
    expected: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "MOST_STALL_S", 0.0)
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        other = request("other", prompt(1, seed=3))
        assert await side.ask(other) == (await said_alone(model, other),)
        assert not held.let.is_set() and not side.of(ASKED, TokenGenerated)
        held.release()
        assert await side.answer(ASKED) == (expected,)
        assert len(side.of(ASKED, Started)) == 1
        assert side.fetched(ASKED).missing_tokens == 0
        await side.rest()


async def test_a_request_that_ends_meanwhile_leaves_nothing(
    model: Path, store: ScriptedStore, held: Held
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        await side.worker.abort(ASKED.id, ASKED.attempt)
        held.release()
        await side.rest()
        assert not side.of(ASKED, (TokenGenerated, SequenceEnded))


async def test_a_store_that_dies_meanwhile_changes_no_text(
    model: Path, store: ScriptedStore, held: Held, expected: tuple[int, ...]
) -> None:
    """Its memory outlives it."""
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        await store.close()
        held.release()
        assert await side.answer(ASKED) == (expected,)
        await side.rest()


@pytest.fixture
def failing(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine raises when it would wait for the last layers."""

    def fails(wait: LayerWait, group: int) -> bool:
        if group:
            assert held.reached.wait(60)
            raise RuntimeError("the device is gone")
        return True

    monkeypatch.setattr(LayerWait, "wait", fails)


@pytest.mark.usefixtures("failing")
async def test_an_engine_that_fails_meanwhile_ends_that_attempt_alone(
    model: Path, store: ScriptedStore, held: Held
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        await side.until(lambda: bool(side.of(ASKED, AttemptFailed)))
        assert not side.of(ASKED, SequenceEnded), "another worker may go on with it"
        other = request("other", prompt(1, seed=3))
        assert await side.ask(other) == (await said_alone(model, other),)
        assert not held.let.is_set(), "it did not wait for the fetch"
        held.release()
        await side.rest()


@pytest.mark.usefixtures("failing")
async def test_what_a_failed_step_awaited_is_computed_and_put_again(
    model: Path, store: ScriptedStore, held: Held, expected: tuple[int, ...]
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        await side.until(lambda: bool(side.of(ASKED, AttemptFailed)))
        store.puts.clear()
        again = request("again", PROMPT)
        assert await side.ask(again) == (expected,)
        assert side.started(again).cached_tokens == 0, "nothing of it is found again"
        await until(lambda: sum(len(one.blocks) for one in store.puts) == BLOCKS)
        held.release()
        await side.rest()


async def test_a_worker_that_is_closed_meanwhile_waits_for_the_copy_and_ends(
    model: Path, store: ScriptedStore, held: Held
) -> None:
    async with store_worker(model, fetch_timeout_s=60.0, layer_groups=8) as side:
        await begun(side, held)
        closing = asyncio.create_task(side.worker.close())
        await asyncio.sleep(0)
        assert not closing.done()
        held.release()
        await closing
        view = side.worker.view()
        assert (view.running, view.pulling, view.held_pages) == (0, 0, 0)
        assert not side.of(ASKED, TokenGenerated)
