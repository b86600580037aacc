"""I52 and the store: of what a window has passed nothing is fetched, and nobody's tokens change."""

from dataclasses import replace

import pytest
from fetch_bench import LEASE, FetchBench, filled
from scheduler_bench import request

from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.core.scheduler.windowed_memory import WindowedMemory
from antiphon.errors import BugError
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import NO_PAGE, Fetched, KvConfig, KvGroup, Prefilled, SchedulerConfig

MIXED = WorkerSetup(
    config=SchedulerConfig(max_batched_tokens=8, reserve_fraction=0.0),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=200,
    groups=(KvGroup(), KvGroup(window=6, pages=3)),
)
"""Of each entry a page of every position, and three that pass."""
PROMPT = tuple(1 + at % 8 for at in range(41))
"""Ten blocks and a token. Position 40 sees from 35 on: two blocks."""
BLOCKS, SEEN, LASTING, PASSING = 10, 2, 2, 6
"""Pages of a block: those that last, and those that pass."""


def begun(setup: WorkerSetup = MIXED, **how):
    bench = FetchBench(filled(PROMPT, MIXED), setup)
    bench.add(request(prompt=PROMPT), **how)
    return bench, bench.begin()


def held(bench: FetchBench) -> int:
    return bench.scheduler.view(0.0).held_pages


def came(events: list) -> Fetched:
    [end] = (one for one in events if isinstance(one, Fetched))
    return end


def test_of_ten_blocks_the_last_two_come_whole() -> None:
    bench, fetch = begun()
    assert fetch.back == (0, 2, 2, 2) * 2
    first = fetch.first_blocks(BLOCKS)
    read = [
        block >= begin
        for block, pages in enumerate(fetch.targets)
        for _, begin in zip(pages, first, strict=True)
    ]
    assert sum(read) == BLOCKS * LASTING + SEEN * PASSING
    assert came(bench.end(fetch)).fetched_tokens == 40
    assert held(bench) == sum(read) + 4, "and pages for the last token"
    bench.finish()
    assert held(bench) == 0


@pytest.mark.parametrize("had", [1, 2, 3, 9])
def test_what_the_store_has_counts_from_its_own_end(had: int) -> None:
    """Fewer blocks come than were asked for: their last two are whole."""
    bench, fetch = begun()
    assert came(bench.end(fetch, lost=range(had, BLOCKS))).fetched_tokens == 4 * had
    bench.finish()


def test_a_page_that_does_not_come_costs_the_fetch_and_no_token() -> None:
    """Nothing shorter can be gone on from: what its windows see was left out."""
    bench, fetch = begun()
    good = bench.side.copy(fetch)
    assert all(good)
    none = (False,) * BLOCKS
    end = came(list(bench.scheduler.fetched(fetch.request, fetch.attempt, none, 0.0, "damaged")))
    assert (end.fetched_tokens, end.missing_tokens) == (0, 40)
    bench.finish()


def test_what_came_is_gone_on_from_by_the_next_turn() -> None:
    bench, fetch = begun()
    bench.end(fetch)
    bench.finish()
    bench.add(request("next", (*PROMPT, 9, 9, 9, 9, 5)))
    plan, _ = bench.turn()
    assert plan.chunks[0].start >= 40, "found here"
    bench.finish()


def test_what_several_sequences_share_is_fetched_whole() -> None:
    bench = FetchBench(filled(PROMPT, MIXED), MIXED)
    bench.add(request(prompt=PROMPT, n=2))
    fetch = bench.begin()
    assert fetch.back == ()
    assert came(bench.end(fetch)).fetched_tokens == 40
    bench.finish()


def test_layers_that_all_see_all_are_fetched_whole() -> None:
    plain = replace(MIXED, groups=(KvGroup(),))
    bench = FetchBench(filled(PROMPT, plain), plain)
    bench.add(request(prompt=PROMPT))
    assert bench.begin().back == ()


def test_a_prefill_promises_what_it_still_has() -> None:
    """It has given pages back that nothing came for: others may promise theirs."""
    bench, fetch = begun(lease=LEASE)
    bench.end(fetch)
    roster = bench.scheduler._roster
    assert len(roster.promised) == held(bench) == BLOCKS * LASTING + SEEN * PASSING + 4
    [offer] = (one for one in bench.finish() if isinstance(one, Prefilled))
    [sequence] = offer.sequences
    assert sequence.table.count(NO_PAGE) == 9 * PASSING, "position 41 sees from 36 on"
    assert len(roster.promised) == 0
    bench.scheduler.leases.release_of(fetch.request)
    assert held(bench) == 0


def test_a_prefill_that_ends_while_its_blocks_come_promises_nothing() -> None:
    bench, fetch = begun(lease=LEASE)
    bench.scheduler.abort(fetch.request, 0.0)
    assert bench.end(fetch) == []
    assert len(bench.scheduler._roster.promised) == held(bench) == 0


class FetchesLess(WindowedMemory):
    """Takes windows for a block shorter than they are."""

    def blocks_back(self) -> tuple[int, ...]:
        return tuple(max(0, back - 1) for back in super().blocks_back())


class KeepsTheUnread(WindowedMemory):
    """Gives names to pages that nothing came for."""

    def pass_by(self, sequence, now: int) -> None:
        sequence.passed_at = now


def test_control_a_window_that_is_fetched_too_short_is_found() -> None:
    bench, fetch = begun(replace(MIXED, parts=replace(STANDARD_PARTS, windowed_memory=FetchesLess)))
    bench.end(fetch)
    with pytest.raises(BugError, match="I5"):
        bench.finish()


def test_control_a_page_that_did_not_come_and_is_named_is_found() -> None:
    """A shorter prompt reads it."""
    faulty = replace(STANDARD_PARTS, windowed_memory=KeepsTheUnread)
    bench, fetch = begun(replace(MIXED, parts=faulty))
    bench.end(fetch)
    bench.finish()
    bench.add(request("shorter", (*PROMPT[:20], 9)), 0)
    with pytest.raises(BugError, match="I5"):
        bench.finish()
