"""I52 between workers: of what a window has passed nothing moves, and nobody's tokens change."""

from dataclasses import replace

import pytest
from handover_pair import Entry, Pair, adopted
from test_scheduler_laws import alone

from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.core.scheduler.windowed_memory import WindowedMemory
from antiphon.errors import BugError
from antiphon.testing.strategies import WorkerSetup
from antiphon.types import (
    NO_PAGE,
    FinishReason,
    KvConfig,
    KvGroup,
    OfferedSequence,
    Pull,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
)

WINDOW, PASSING = 6, 3
MIXED = WorkerSetup(
    config=SchedulerConfig(max_batched_tokens=8, reserve_fraction=0.0),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=400,
    groups=(KvGroup(), KvGroup(window=WINDOW, pages=PASSING)),
)
"""A page of every position, and three that pass."""
PROMPT = 8 * WINDOW
ENTRIES = PROMPT // 2
SEEN = 4
"""Entries from the block on in which the window of position 48 begins: those of positions 40 to
47."""


def asked(name: str = "r", prompt: int = PROMPT, n: int = 1) -> Request:
    ids = tuple(1 + at * at % 13 for at in range(prompt))
    sampling = SamplingParams(max_tokens=12, seed=1, n=n)
    return Request(id=RequestId(name), prompt=ids, sampling=sampling)


def pull_of(pair: Pair) -> Pull:
    pair.step(pair.decode)
    (pull,) = pair.pulls
    return pull


def to_the_end(pair: Pair, entry: Entry) -> None:
    pair.finish()
    pair.check_tokens(entry)
    assert entry.ends == dict.fromkeys(range(entry.request.sampling.n), FinishReason.LENGTH)
    for side in (pair.prefill, pair.decode):
        assert side.scheduler.view(pair.now).held_pages == 0


def test_of_eight_windows_the_last_one_moves() -> None:
    pair = Pair(MIXED)
    entry = adopted(pair, asked())
    offer = entry.offer
    assert offer is not None
    [offered] = offer.sequences
    assert len(offered.table) == ENTRIES * (1 + PASSING)
    assert NO_PAGE not in offered.table[:: 1 + PASSING]
    assert offered.table.count(NO_PAGE) == (ENTRIES - SEEN) * PASSING
    moved = ENTRIES + SEEN * PASSING
    assert len(offer.pages) == moved
    assert pair.prefill.scheduler.view(0.0).held_pages == moved, "nor is more kept for the taker"
    pull = pull_of(pair)
    assert len(pull.pages) == moved
    pair.end_pull(pull)
    assert entry.pulled is not None and entry.pulled.pulled_tokens == PROMPT
    assert entry.pulled.moved_bytes == moved * pull.offer.kv.page_bytes
    assert pair.decode.scheduler.view(0.0).held_pages < moved + 4 * (1 + PASSING)
    to_the_end(pair, entry)


def test_a_model_of_windows_alone_moves_one_window() -> None:
    pair = Pair(replace(MIXED, groups=(KvGroup(window=WINDOW),)))
    entry = adopted(pair, asked())
    pull = pull_of(pair)
    assert len(pull.pages) == SEEN
    pair.end_pull(pull)
    to_the_end(pair, entry)


@pytest.mark.parametrize("bad", [0, 20, ENTRIES + SEEN * PASSING - 1])
def test_a_page_that_does_not_come_costs_the_transfer_and_no_token(bad: int) -> None:
    """Nothing shorter can be gone on from: what its windows see was left out."""
    pair = Pair(MIXED, bad=[frozenset({bad})])
    entry = adopted(pair, asked())
    pair.end_pull(pull_of(pair))
    assert entry.pulled is not None and entry.pulled.missing_tokens == PROMPT
    to_the_end(pair, entry)


@pytest.mark.parametrize("bad", [(), (3,)])
def test_the_next_turn_of_a_conversation_pulls_what_is_new(bad: tuple[int, ...]) -> None:
    """What came of the first one is found again, up to where its windows' pages are; and that can
    be gone on from if the rest does not come."""
    pair = Pair(MIXED, bad=[frozenset(bad), frozenset()])
    first = adopted(pair, asked(prompt=PROMPT // 2))
    pair.end_pull(pull_of(pair))
    to_the_end(pair, first)
    second = adopted(pair, asked("s"))
    pull = pull_of(pair)
    assert len(pull.pages) == ENTRIES // 2 + SEEN * PASSING
    pair.end_pull(pull)
    assert second.pulled is not None and second.pulled.cached_tokens == PROMPT // 2
    assert second.pulled.missing_tokens == (PROMPT // 2 if bad else 0)
    to_the_end(pair, second)


def test_nobody_is_told_of_what_came_without_its_windows_until_it_is_computed() -> None:
    """A router that hears of it would send who shares a part of the prompt, and all of that would
    be computed. What is then there is told, so it can be put."""
    pair = Pair(MIXED)
    first = adopted(pair, asked())
    pair.end_pull(pull_of(pair))
    to_the_end(pair, first)
    decode = pair.decode.scheduler
    told = decode.named_blocks()
    assert told and None not in map(decode.named_block, told)
    shorter = replace(asked("s"), prompt=(*first.request.prompt[: PROMPT // 2], 15, 14))
    second = pair.submit_whole(shorter, pair.decode)
    assert second is not None
    to_the_end(pair, second)
    assert decode.view(pair.now).prefix_hit_tokens_total == 0
    new = [key for key in decode.named_blocks() if key not in told]
    third = pair.submit_whole(replace(shorter, id=RequestId("t")), pair.decode)
    assert third is not None
    to_the_end(pair, third)
    hit = decode.view(pair.now).prefix_hit_tokens_total
    assert hit == PROMPT // 2 and len(new) >= hit // MIXED.kv.block_tokens


def test_sequences_that_share_a_prompt_move_whole() -> None:
    pair = Pair(MIXED)
    entry = adopted(pair, asked(n=2))
    offer = entry.offer
    assert offer is not None
    assert all(NO_PAGE not in one.table for one in offer.sequences)
    pull = pull_of(pair)
    assert len(pull.pages) == ENTRIES * (1 + PASSING)
    pair.end_pull(pull)
    to_the_end(pair, entry)


@pytest.mark.parametrize("bad", [(), (0,), (3,)])
@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("late", [False, True])
def test_one_of_two_goes_on_when_the_other_ends(
    bad: tuple[int, ...], gone: int, late: bool
) -> None:
    """Their tokens of an earlier attempt move, too. Whoever is left may have to compute the prompt
    that they share, though its own part came whole."""
    pair = Pair(MIXED, bad=[frozenset(bad)])
    one = asked(prompt=17, n=2)
    longer = replace(one, sampling=replace(one.sampling, max_tokens=60))
    said = [[token for _, token in alone(MIXED, longer, sequence)][:24] for sequence in range(2)]
    entry = adopted(pair, replace(longer, attempt=1, resumed=tuple(map(tuple, said))))
    pull = pull_of(pair)
    if not late:
        pair.abort(entry, gone)
    pair.end_pull(pull)
    if late:
        pair.abort(entry, gone)
    pair.finish()
    pair.check_tokens(entry)
    assert entry.ends == {gone: FinishReason.ABORTED, 1 - gone: FinishReason.LENGTH}
    for side in (pair.prefill, pair.decode):
        assert side.scheduler.view(pair.now).held_pages == 0


@pytest.mark.parametrize("place", [0, 4, ENTRIES * 4 - 1, (ENTRIES - SEEN) * 4 + 1])
def test_an_offer_that_lacks_what_is_read_is_not_used(place: int) -> None:
    pair = Pair(MIXED)
    entry = pair.submit(asked())
    assert entry is not None
    while entry.offer is None:
        pair.step(pair.prefill)
        pair.complete(pair.prefill)
    [one] = entry.offer.sequences
    table = (*one.table[:place], NO_PAGE, *one.table[place + 1 :])
    holed = OfferedSequence(one.sequence, one.tokens, table)
    entry.offer = replace(entry.offer, sequences=(holed,))
    assert pair.adopt(entry)
    pull = pull_of(pair)
    assert pull.pages == ()
    pair.end_pull(pull)
    assert entry.pulled is not None and entry.pulled.missing_tokens == PROMPT
    assert "does not cover sequence 0" in entry.pulled.problem
    to_the_end(pair, entry)


class LeavesOutTooMuch(WindowedMemory):
    """Takes windows for a block shorter than they are."""

    def lacking(self, sequence, end, *, alone):
        kept = set(super().lacking(sequence, end + self.block_tokens, alone=alone))
        return [place for place in super().lacking(sequence, end, alone=alone) if place in kept]


class KeepsWhatDidNotCome(WindowedMemory):
    """Gives no page back that nothing came for, and so they get names."""

    def pass_by(self, sequence, now):
        if sequence.owner.lease is not None:
            super().pass_by(sequence, now)


@pytest.mark.parametrize("mutant", [LeavesOutTooMuch, KeepsWhatDidNotCome])
def test_control_a_taker_that_goes_on_without_its_windows_is_found(
    mutant: type[WindowedMemory],
) -> None:
    pair = Pair(MIXED, decode=replace(STANDARD_PARTS, windowed_memory=mutant))
    adopted(pair, asked())
    with pytest.raises(BugError, match=r"I5|was never written"):
        pair.end_pull(pull_of(pair))
        pair.finish()
