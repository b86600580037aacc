"""A worker beside a store that does well, ill, or nothing: what it says is always the same."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from link_kit import until
from scripted_store import ScriptedStore, open_descriptors, until_closed
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

from antiphon.core.handover import LEASES
from antiphon.core.recorder import Entry, replay
from antiphon.core.scheduler import SCHEDULER
from antiphon.types import (
    Aborted,
    Incarnation,
    KvShape,
    LeaseHeld,
    Locate,
    Located,
    Offer,
    Pulled,
    RequestId,
    SequenceEnded,
    Stage,
    StoreRefusal,
    StoreRefused,
    TokenGenerated,
)

pytestmark = pytest.mark.timeout(120)
BLOCKS = 5
PROMPT = prompt(BLOCKS)
KNOWN = BLOCKS * BLOCK


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def shape(model: Path) -> KvShape:
    region = loaded(model).region
    assert region is not None
    return region.shape


@pytest.fixture(scope="session")
def expected(model: Path) -> tuple[int, ...]:
    return asyncio.run(said_alone(model, request("r", PROMPT)))


@pytest.fixture
async def folder(model: Path) -> AsyncIterator[Path]:
    """The model's folder is the sockets' too. Law: nobody leaves anything there."""
    model.chmod(0o700)
    yield model
    assert not list(model.glob("*.sock"))


@pytest.fixture
async def store(folder: Path, shape: KvShape) -> AsyncIterator[ScriptedStore]:
    async with ScriptedStore(folder, shape) as one:
        yield one


async def filled(folder: Path, store: ScriptedStore, *prompts: tuple[int, ...]) -> None:
    """Another worker has computed these, and is gone."""
    async with store_worker(folder, "earlier") as side:
        await until(lambda: side.connected)
        before = len(store.kept)
        for number, tokens in enumerate(prompts or (PROMPT,)):
            await side.ask(request(f"e{number}", tokens))
        blocks = sum(len(tokens) // BLOCK for tokens in prompts or (PROMPT,))
        await until(lambda: len(store.kept) >= before + blocks)
        assert side.worker.view().put_blocks_total == len(store.kept) - before
        await side.rest()


async def test_what_one_worker_has_computed_another_takes_from_the_store(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    await filled(folder, store)
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        fetched = side.fetched(asked)
        assert (fetched.fetched_tokens, fetched.missing_tokens) == (KNOWN, 0)
        assert fetched.problem == "" and fetched.seconds > 0
        assert side.started(asked).stored_tokens == KNOWN
        view = side.worker.view()
        assert view.fetched_tokens_total == KNOWN and view.fetch_missed_blocks_total == 0
        assert view.computed_tokens_total < BLOCK
        await side.rest()
        assert view.put_blocks_total == 0, "what came from there is not put again"
        assert view.store_sessions == 1
        await until(lambda: len(store.released) == 1)


async def test_a_block_is_put_when_its_step_is_complete(folder: Path, store: ScriptedStore) -> None:
    """Not when its request ends: a long output is a prompt's beginning in the next turn."""
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = replace(request("r", PROMPT[: BLOCK - 2]))
        sampling = replace(asked.sampling, max_tokens=80)
        await side.worker.add(replace(asked, sampling=sampling))
        await side.until(lambda: len(side.of(asked, TokenGenerated)) > 5)
        await until(lambda: len(store.kept) == 1)
        assert not side.of(asked, SequenceEnded)
        await side.answer(asked)
        await until(lambda: len(store.kept) == 2)
        first, second = (put.blocks[0] for put in store.puts)
        assert (first.parent, second.parent) == (None, first.key)


async def test_tenants_have_nothing_in_common(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    """LMCache 4825: a salt that was dropped on the way told one tenant what another had asked."""
    await filled(folder, store)
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT, tenant_salt=b"other")
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == 0
        await until(lambda: len(store.kept) == 2 * BLOCKS)
        assert len({put.tenant for put in store.puts}) == 2
        assert store.asked[0].tenant in {put.tenant for put in store.puts}
        await side.rest()


async def test_a_prompt_is_fetched_here_and_goes_on_there(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    """Pages that were fetched are offered like computed ones."""
    await filled(folder, store)
    async with store_worker(folder, "p0") as prefill, store_worker(folder, "d0") as decode:
        await until(lambda: prefill.connected and decode.connected)
        asked = request("r", PROMPT)
        await prefill.worker.add(asked, Stage.PREFILL, KNOWN)
        await prefill.until(lambda: bool(prefill.of(asked, Offer)))
        assert prefill.fetched(asked).fetched_tokens == KNOWN
        (offer,) = prefill.of(asked, Offer)
        (first,) = prefill.of(asked, TokenGenerated)
        granted = await prefill.worker.grant(offer.lease, decode.info.incarnation, 1)
        assert granted == LeaseHeld(offer.lease)
        await decode.worker.adopt(replace(asked, resumed=((first.token,),)), offer)
        assert await decode.answer(asked) == (expected[1:],)
        (pulled,) = decode.of(asked, Pulled)
        assert (pulled.pulled_tokens, pulled.missing_tokens) == (len(PROMPT), 0)
        assert decode.worker.view().put_blocks_total == 0, "the others have put them"
        await prefill.rest()
        await decode.rest()


async def test_sequences_of_one_prompt_share_what_was_fetched(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    await filled(folder, store)
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT, n=3)
        assert await side.ask(asked, fetch=KNOWN) == (expected,) * 3
        assert len(store.asked) == 1
        await side.rest()


async def test_a_worker_without_a_store_computes_all(
    folder: Path, expected: tuple[int, ...]
) -> None:
    """Also if its gateway believes otherwise."""
    assert await said_alone(folder, request("r", PROMPT), fetch=KNOWN) == expected
    async with store_worker(folder, store=False) as side:
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.started(asked).cached_tokens == 0
        await side.rest()


async def test_a_store_that_is_not_there_delays_nothing(
    folder: Path, expected: tuple[int, ...]
) -> None:
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        asked = request("r", PROMPT)
        assert await asyncio.wait_for(side.ask(asked, fetch=KNOWN), 30) == (expected,)
        assert side.fetched(asked).problem == "the KV store is not there"
        view = side.worker.view()
        assert view.fetch_missed_blocks_total == view.put_dropped_blocks_total == BLOCKS
        assert view.store_sessions == 0
        await side.rest()


# ── a store that does ill ────────────────────────────────────────────────────────────────────────


def damaged(store: ScriptedStore, number: int) -> Callable[[Located], Located]:
    """One byte of one block is another than it was."""

    def damage(located: Located) -> Located:
        page = located.blocks[number][1].page
        store.region.content.reshape(store.shape.pages, -1)[page][100] ^= 1
        return located

    return damage


def reassigned(store: ScriptedStore, number: int) -> Callable[[Located], Located]:
    """Its slot is being filled with something else."""

    def reassign(located: Located) -> Located:
        store.region.begin_write([located.blocks[number][3].page])
        return located

    return reassign


def swapped_out(located: Located) -> Located:
    return replace(located, blocks=(*located.blocks, *located.blocks))


@pytest.mark.parametrize("bad", [0, 2, 4])
@pytest.mark.parametrize("harm", [damaged, reassigned])
async def test_what_is_not_what_it_was_is_computed(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...], harm, bad: int
) -> None:
    """LMCache 2299: wrong text under load, with KV that had been moved out of the engine."""
    await filled(folder, store)
    change = harm(store, bad)
    store.answer = lambda locate: change(store.located(locate))
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == bad * BLOCK
        assert side.worker.view().fetch_missed_blocks_total == BLOCKS - bad
        await side.rest()


@pytest.mark.parametrize(
    "change",
    [
        swapped_out,
        lambda located: replace(located, blocks=()),
        lambda located: replace(located, lease=None),
        lambda located: replace(located, blocks=tuple(block[:2] for block in located.blocks)),
    ],
    ids=["too many", "none", "no lease", "short"],
)
async def test_an_answer_that_is_none_costs_a_computation(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...], change
) -> None:
    """LMCache 1690: the master said that a key exists, and the data was gone."""
    await filled(folder, store)
    store.answer = lambda locate: change(store.located(locate))
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == 0
        await side.rest()


async def test_a_store_that_does_not_answer_holds_one_request_up_for_its_deadline_only(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    """Mooncake 1088: stalls of a minute. Who wants nothing of the store does not wait at all."""
    await filled(folder, store)
    store.answer = lambda _: None
    async with store_worker(folder, fetch_timeout_s=1.0) as side:
        await until(lambda: side.connected)
        asked, other = request("r", PROMPT), request("other", prompt(1, seed=3))
        await side.worker.add(asked, Stage.WHOLE, KNOWN)
        await until(lambda: len(store.asked) == 1)
        await side.ask(other)
        assert not side.of(asked, TokenGenerated)
        assert await side.answer(asked) == (expected,)
        fetched = side.fetched(asked)
        assert fetched.problem == "the KV store took longer than 1.0 s"
        assert fetched.seconds >= 1.0
        await side.rest()


async def test_a_store_that_dies_in_the_middle_is_a_miss(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    await filled(folder, store)
    store.answer = lambda _: None
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT)
        await side.worker.add(asked, Stage.WHOLE, KNOWN)
        await until(lambda: len(store.asked) == 1)
        await store.close()
        assert await asyncio.wait_for(side.answer(asked), 30) == (expected,)
        await store.open()
        store.answer = store.located
        await until(lambda: side.connected)
        await side.rest()
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        asked = request("again", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN


async def test_a_store_that_has_lost_all_gets_it_from_the_workers_cache(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    """A put never came again: the hottest prompts, which workers have, were in no store."""
    async with store_worker(folder) as side:
        await until(lambda: side.connected)
        assert await side.ask(request("r", PROMPT)) == (expected,)
        await until(lambda: len(store.kept) == BLOCKS)
        await store.close()
        store.kept.clear()
        await store.open()
        await until(lambda: len(store.kept) == BLOCKS)
        await side.rest()
    async with store_worker(folder, "other") as side:
        await until(lambda: side.connected)
        asked = request("again", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN


async def test_a_request_that_comes_with_the_worker_gets_its_prompt_from_the_store(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    """After each restart the first one was computed: the session began a moment too late."""
    await filled(folder, store)
    async with store_worker(folder) as side:
        assert not side.connected
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN


async def test_a_store_that_refuses_changes_nothing(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    store.refuse = StoreRefused(StoreRefusal.MODEL, "another model is here")
    async with store_worker(folder) as side:
        await until(lambda: len(store.hellos) > 1)
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        await side.rest()


# ── ends in the middle ───────────────────────────────────────────────────────────────────────────


async def held_up(side: StoreWorker, store: ScriptedStore, name: str = "r") -> None:
    """A request waits for a store that does not answer."""
    await until(lambda: side.connected)
    asked = len(store.asked)
    store.answer = lambda _: None
    await side.worker.add(request(name, PROMPT), Stage.WHOLE, KNOWN)
    await until(lambda: len(store.asked) == asked + 1)


async def test_an_abort_gives_the_pages_back_at_once(folder: Path, store: ScriptedStore) -> None:
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await held_up(side, store)
        assert side.worker.view().held_pages > 0
        assert await side.worker.abort(RequestId("r"), 1) == Aborted(
            request=RequestId("r"), sequences=(0,)
        )
        await asyncio.wait_for(side.rest(), 30)


async def test_a_deadline_ends_the_fetch_too(folder: Path, store: ScriptedStore) -> None:
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await until(lambda: side.connected)
        store.answer = lambda _: None
        soon = asyncio.get_running_loop().time() + 0.3
        asked = request("r", PROMPT, deadline=soon)
        await side.worker.add(asked, Stage.WHOLE, KNOWN)
        assert await asyncio.wait_for(side.answer(asked), 30) == ((),)
        await asyncio.wait_for(side.rest(), 30)


async def test_a_later_attempt_goes_its_own_way(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    await filled(folder, store)
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await held_up(side, store)
        store.answer = store.located
        again = request("r", PROMPT, attempt=2)
        assert await side.ask(again, fetch=KNOWN) == (expected,)
        await asyncio.wait_for(side.rest(), 30)


async def test_a_new_life_of_the_worker_has_nothing_of_the_old(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    await filled(folder, store)
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await held_up(side, store)
        await side.worker.new_life(Incarnation("w0-2"))
        side.kv.new_life()
        store.answer = store.located
        await until(lambda: store.hellos[-1].incarnation == "w0-2" and side.connected)
        asked = request("r2", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        await asyncio.wait_for(side.rest(), 30)


async def test_a_worker_that_ends_waits_for_no_store(folder: Path, store: ScriptedStore) -> None:
    async with store_worker(folder, fetch_timeout_s=60.0) as side:
        await held_up(side, store)
        await asyncio.wait_for(side.worker.close(), 30)


# ── all of it ────────────────────────────────────────────────────────────────────────────────────


class Moods:
    """What a store answers, drawn anew for each question."""

    def __init__(self, store: ScriptedStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance

    def answer(self, locate: Locate) -> Located | None:
        located = self._store.located(locate)
        mood = self._chance.randrange(8)
        if mood == 0:
            return None
        if mood == 1:
            return swapped_out(located)
        if mood == 2:
            self._store.callers[-1].stream.end("for a test")
        if mood > 4 or not located.blocks:
            return located
        harm = damaged if mood == 3 else reassigned
        return harm(self._store, self._chance.randrange(len(located.blocks)))(located)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_a_store_does_the_texts_are_the_same_and_nothing_is_left(
    folder: Path, store: ScriptedStore, seed: int
) -> None:
    """vLLM 31210: only a comparison to the bit found that offloaded KV changed what was said."""
    chance = random.Random(seed)
    prompts = [prompt(1 + number % 4, seed=number % 5) for number in range(20)]
    expected = {tokens: await said_alone(folder, request("r", tokens)) for tokens in prompts}
    store.answer = Moods(store, chance).answer
    before = open_descriptors()
    for life in ("1", "2", "3"):
        async with store_worker(folder, fetch_timeout_s=0.3, life=life) as side:
            await until(partial(_connected, side))
            asked = [request(f"r{number}", tokens) for number, tokens in enumerate(prompts)]
            for one in asked:
                await side.worker.add(one, Stage.WHOLE, len(one.prompt) // BLOCK * BLOCK)
                await asyncio.sleep(chance.random() * 0.01)
            aborted = [
                one.id
                for one in asked
                if chance.random() < 0.2 and isinstance(await side.worker.abort(one.id, 1), Aborted)
            ]
            for one in asked:
                if one.id not in aborted:
                    assert await side.answer(one) == (expected[one.prompt],)
            await side.rest()
    del side
    await until_closed(before)
    assert store.kept and store.released


def _connected(side: StoreWorker) -> bool:
    return side.connected


async def test_the_decisions_replay(folder: Path, store: ScriptedStore) -> None:
    await filled(folder, store)
    change = damaged(store, 3)
    store.answer = lambda locate: change(store.located(locate))
    entries: list[Entry] = []
    async with store_worker(folder, log_decision=entries.append) as side:
        await until(lambda: side.connected)
        await side.ask(request("r", PROMPT), fetch=KNOWN)
        await side.rest()
    assert "fetched" in {entry.method for entry in entries}
    fresh = loaded(folder).scheduler
    machines = {SCHEDULER: fresh, LEASES: fresh.leases}
    assert list(replay(entries, machines)) == []
