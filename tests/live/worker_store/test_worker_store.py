"""A worker beside a store that does well, or nothing: what it says is always the same."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fetched_prompt import BLOCKS, KNOWN, PROMPT, damaged, filled
from link_kit import until
from scripted_store import ScriptedStore
from store_worker import BLOCK, StoreWorker, loaded, request, said_alone, store_worker

from antiphon.core.handover import LEASES
from antiphon.core.recorder import Entry, replay
from antiphon.core.scheduler import SCHEDULER
from antiphon.types import (
    Aborted,
    Incarnation,
    LeaseHeld,
    Offer,
    Pulled,
    RequestId,
    SequenceEnded,
    Stage,
    TokenGenerated,
)

pytestmark = pytest.mark.timeout(120)


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
