"""How many workers a load needs, against queues that are known and against common sense."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_kit import DECODE, MIXED, PREFILL, SLO, Times, capacity

from antiphon.core.planner import Capacity, Shape
from antiphon.types import Role, Seconds, Slo

LAW = settings(deadline=None, max_examples=100, database=None, derandomize=True)
SHAPE = Shape(input_tokens=1000, output_tokens=301, uncached=1000)
ROLES = st.sampled_from([PREFILL, DECODE, MIXED])


@LAW
@given(ROLES, st.floats(0, 200), st.floats(1, 1.5))
def test_more_load_and_slower_workers_never_need_fewer(
    role: Role, rate: float, more: float
) -> None:
    one = capacity()
    need = one.workers(role, rate, SHAPE, SLO, 1000)
    assert one.workers(role, rate * more, SHAPE, SLO, 1000) >= need
    assert one.at_pace(more).workers(role, rate, SHAPE, SLO, 1000) >= need
    softer = Slo(ttft_s=SLO.ttft_s * more, tpot_s=SLO.tpot_s * more)
    assert one.workers(role, rate, SHAPE, softer, 1000) <= need


@LAW
@given(st.floats(0.1, 500))
def test_prefill_workers_are_never_busier_than_they_can_be(rate: float) -> None:
    workers = capacity().workers(PREFILL, rate, SHAPE, SLO, 10_000)
    assert rate * 0.1 < workers <= rate * 0.1 + 2 + 2 * (rate * 0.1) ** 0.5


def test_a_pool_may_be_busier_than_one_alone() -> None:
    one = capacity()
    alone = one.prefill_per_s(SHAPE, SLO.ttft_s)
    assert 0.5 < alone * 0.1 < 0.9
    assert one.workers(PREFILL, 20 * alone, SHAPE, SLO, 100) < 20


def test_prompts_of_unequal_length_wait_longer() -> None:
    uneven = replace(SHAPE, variation=4.0)
    one, rate = capacity(), 25.0
    assert one.workers(PREFILL, rate, uneven, SLO, 99) > one.workers(PREFILL, rate, SHAPE, SLO, 99)


def test_what_caches_have_needs_no_prefill_but_its_place() -> None:
    one, hit = capacity(), replace(SHAPE, uncached=100)
    assert one.workers(PREFILL, 50, hit, SLO, 99) == 1
    assert one.workers(DECODE, 50, hit, SLO, 99) == one.workers(DECODE, 50, SHAPE, SLO, 99)


def test_a_decode_batch_is_as_large_as_target_and_memory_allow() -> None:
    one = capacity()
    assert one.batch(SHAPE, 0.02) == 40
    assert one.batch(SHAPE, 0.004) == 0
    assert Capacity(Times(), kv_tokens=13_010).batch(SHAPE, 0.02) == 10
    assert one.decode_per_s(SHAPE, 0.02) == pytest.approx(40 / (300 * 0.02))
    assert one.decode_per_s(SHAPE, 0.004) == 0.0
    assert one.decode_per_s(replace(SHAPE, output_tokens=1), 0.02) == inf


def test_decode_workers_have_places_for_what_littles_law_says() -> None:
    rate = 100.0
    in_work = rate * 300 * 0.02
    workers = capacity().workers(DECODE, rate, SHAPE, SLO, 99)
    assert in_work / 40 < workers <= in_work / 40 + 2


@pytest.mark.parametrize("role", [PREFILL, DECODE, MIXED])
def test_targets_out_of_reach_are_sized_so_that_queues_do_not_grow(role: Role) -> None:
    hopeless = Slo(ttft_s=0.01, tpot_s=0.001)
    workers = capacity().workers(role, 20.0, SHAPE, hopeless, 1000)
    assert 2 <= workers < 50
    assert capacity().mixed_per_s(SHAPE, hopeless) == 0.0


def test_a_mixed_worker_does_less_of_each_than_one_of_either() -> None:
    one = capacity()
    mixed = one.mixed_per_s(SHAPE, SLO)
    assert 0 < mixed < min(one.prefill_per_s(SHAPE, SLO.ttft_s), one.decode_per_s(SHAPE, 0.02))


@pytest.mark.parametrize("role", [PREFILL, DECODE, MIXED])
def test_no_load_needs_nobody_and_no_load_needs_more_than_the_most(role: Role) -> None:
    assert capacity().workers(role, 0.0, SHAPE, SLO, 9) == 0
    assert capacity().workers(role, 1e9, SHAPE, SLO, 9) == 9
    assert capacity().workers(role, inf, SHAPE, SLO, 9) == 9


class Staged(Times):
    """Two stages: a prompt keeps the next from beginning for half of its time."""

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        return self.prefill_s(tokens, start) / 2


def test_a_pipeline_begins_a_prompt_before_the_last_is_through() -> None:
    staged, plain = Capacity(Staged(), kv_tokens=200_000), capacity()
    assert plain.occupied_s(SHAPE) == plain.prefill_s(SHAPE) == staged.prefill_s(SHAPE)
    assert staged.at_pace(2.0).occupied_s(SHAPE) == plain.prefill_s(SHAPE)
    rate = 40.0
    assert rate * 0.05 < staged.workers(PREFILL, rate, SHAPE, SLO, 99) < rate * 0.1
    assert staged.mixed_per_s(SHAPE, SLO) > plain.mixed_per_s(SHAPE, SLO)
    # The first token comes no sooner.
    assert staged.prefill_per_s(SHAPE, 0.09) == plain.prefill_per_s(SHAPE, 0.09) == 0.0
