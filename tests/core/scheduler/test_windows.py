"""I52: what sliding windows leave a sequence, step by step, and what a fault in it would cause."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from test_scheduler_laws import SETTINGS, Workload, run

from antiphon.core.scheduler import STANDARD_PARTS
from antiphon.core.scheduler.windowed_memory import WindowedMemory
from antiphon.errors import BugError
from antiphon.sim import ScriptedEngine, hashed_script
from antiphon.testing.strategies import VOCAB_SIZE, WorkerSetup, workloads
from antiphon.types import (
    NO_PAGE,
    Admitted,
    KvConfig,
    KvGroup,
    LeaseId,
    Prefilled,
    Rejected,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    Stage,
)

MIXED = WorkerSetup(
    config=SchedulerConfig(max_batched_tokens=4, reserve_fraction=0.0),
    kv=KvConfig(page_tokens=2, block_tokens=4),
    pages=64,
    groups=(KvGroup(), KvGroup(window=6, pages=3)),
)
"""A page of every position, and three that pass: 16 entries if nothing is given back."""


def request(name: str, prompt: int, tokens: int, n: int = 1) -> Request:
    sampling = SamplingParams(max_tokens=tokens, seed=1, n=n)
    ids = tuple(1 + at % 15 for at in range(prompt))
    return Request(id=RequestId(name), prompt=ids, sampling=sampling)


class Run:
    def __init__(self, setup: WorkerSetup) -> None:
        self.scheduler = setup.build()
        self.engine = ScriptedEngine(hashed_script(VOCAB_SIZE), shadow=setup.shadow())
        self.most_held = 0
        self.events: list[object] = []

    def to_the_end(self) -> None:
        while (plan := self.scheduler.step(0.0)) is not None:
            self.most_held = max(self.most_held, self.scheduler.view(0.0).held_pages)
            self.events += self.scheduler.complete(plan, self.engine.forward(plan), 0.0)


def test_a_sequence_holds_what_its_window_spans_and_no_more() -> None:
    """6 + 4 + 4 − 2 positions of the window's three pages: 6 entries of 2; of 50 tokens 25."""
    one = Run(MIXED)
    assert isinstance(one.scheduler.add(request("r", 30, 20), 0.0), Admitted)
    one.to_the_end()
    assert 25 <= one.most_held <= 25 + 6 * 3
    view = one.scheduler.view(0.0)
    assert (view.held_pages, view.preemptions_total) == (0, 0)


def test_a_long_prompt_that_would_not_fit_without_windows_is_served() -> None:
    assert MIXED.build().max_model_len > 16 * 2
    plain = replace(MIXED, groups=(KvGroup(pages=4),)).build()
    assert plain.max_model_len == 16 * 2
    assert isinstance(plain.add(request("r", 40, 4), 0.0), Rejected)
    assert isinstance(MIXED.build().add(request("r", 40, 4), 0.0), Admitted)


def test_a_conversation_goes_on_behind_its_window() -> None:
    """The cache has the end of what was said; what passed before it is not needed."""
    one = Run(MIXED)
    one.scheduler.add(request("r", 40, 1), 0.0)
    one.to_the_end()
    one.scheduler.add(request("s", 46, 1), 0.0)
    plan = one.scheduler.step(0.0)
    assert plan is not None
    [chunk] = plan.chunks
    assert chunk.start == 40
    assert NO_PAGE in chunk.new_pages and chunk.new_pages[0] != NO_PAGE
    one.engine.forward(plan)


def test_what_several_sequences_share_is_offered_whole() -> None:
    """Every layer's pages of every position, also where a prefix without them was in the cache."""
    one = Run(MIXED)
    one.scheduler.add(request("r", 28, 1), 0.0)
    one.to_the_end()
    asked = request("s", 28, 2)
    assert isinstance(one.scheduler.add(asked, 0.0, Stage.PREFILL, LeaseId("l")), Rejected)
    asked = request("s", 12, 2, n=2)
    assert isinstance(one.scheduler.add(asked, 0.0, Stage.PREFILL, LeaseId("l")), Admitted)
    one.to_the_end()
    [offer] = [event for event in one.events if isinstance(event, Prefilled)]
    assert len(offer.sequences) == 2
    for sequence in offer.sequences:
        assert len(sequence.table) == 6 * 4 and NO_PAGE not in sequence.table


class PassesEarly(WindowedMemory):
    """Takes windows for a block shorter than they are."""

    def _pass_by(self, sequence) -> None:
        computed = sequence.computed
        sequence.computed += self.block_tokens
        super()._pass_by(sequence)
        sequence.computed = computed


class FindsHoles(WindowedMemory):
    """Takes a prefix whose window's pages are gone for one that can be gone on from."""

    def match(self, sequence):
        found = super().match(sequence)
        holes = tuple(
            page if place % self.entry_pages == 0 else NO_PAGE
            for place, page in enumerate(found.pages)
        )
        return replace(found, pages=holes, idle_pages=0)


@pytest.mark.parametrize("mutant", [PassesEarly, FindsHoles])
def test_the_laws_find_a_window_that_is_too_short(mutant: type[WindowedMemory]) -> None:
    setup = replace(MIXED, parts=replace(STANDARD_PARTS, windowed_memory=mutant))

    @settings(
        SETTINGS,
        max_examples=300,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    @given(workloads())
    def search(workload: Workload) -> None:
        run(setup, workload)

    with pytest.raises(BugError):
        search()
