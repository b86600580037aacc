"""A worker beside a store that does ill, dies or refuses: what it says is always the same."""

import asyncio
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fetched_prompt import BLOCKS, KNOWN, PROMPT, damaged, filled, reassigned, swapped_out
from link_kit import until
from scripted_store import ScriptedStore, open_descriptors, until_closed
from store_worker import BLOCK, StoreWorker, prompt, request, said_alone, store_worker

from antiphon.types import (
    Aborted,
    Locate,
    Located,
    Stage,
    StoreRefusal,
    StoreRefused,
    TokenGenerated,
)

pytestmark = pytest.mark.timeout(120)


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
