"""What is measured: within the limits, all kinds, and held-out steps that no fit has seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.perf import Limits, StepKind, axes, grid, held_out

LARGE = Limits(max_model_len=8192, pages=10_000, page_tokens=16)

limits = st.builds(
    Limits,
    max_model_len=st.integers(2, 9000),
    pages=st.integers(1, 5000),
    page_tokens=st.sampled_from([1, 16, 64]),
)


@given(limits, st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_every_step_can_run_and_none_twice(limits: Limits, seed: int) -> None:
    seen, unseen = grid(limits), held_out(limits, 12, seed)
    for shapes in (seen, unseen, axes(limits)):
        for shape in shapes:
            assert limits.allow(shape)
            assert all(chunk.start >= 0 and chunk.tokens >= 1 for chunk in shape.chunks)
            ends = [chunk.start + chunk.tokens for chunk in shape.chunks]
            assert max(ends) <= limits.max_model_len
            assert sum(-(-end // limits.page_tokens) for end in ends) <= limits.pages
    chunks = [shape.chunks for shape in (*seen, *unseen)]
    assert len(set(chunks)) == len(chunks)
    assert {shape.chunks for shape in axes(limits)} <= {shape.chunks for shape in seen}
    assert held_out(limits, 12, seed) == unseen


def test_the_grid_covers_what_a_server_runs() -> None:
    shapes = grid(LARGE)
    assert {shape.kind for shape in shapes} == set(StepKind)
    assert max(shape.work.tokens for shape in shapes) == 2048
    assert min(shape.work.tokens for shape in shapes) == 1
    decodes = [shape for shape in shapes if shape.kind is StepKind.DECODE]
    assert {len(shape.chunks) for shape in decodes} == {1, 2, 4, 8, 16, 32, 64}
    assert max(chunk.start for shape in decodes for chunk in shape.chunks) == 8191
    parts = [shape for shape in shapes if shape.kind is StepKind.CHUNK]
    assert max(chunk.start + chunk.tokens for shape in parts for chunk in shape.chunks) == 8192
    assert len(shapes) < 90


@pytest.mark.parametrize("seed", range(5))
def test_held_out_steps_are_of_all_kinds_and_sizes(seed: int) -> None:
    shapes = held_out(LARGE, 40, seed)
    assert len(shapes) == 40
    for kind in StepKind:
        assert sum(shape.kind is kind for shape in shapes) == 10
    tokens = [shape.work.tokens for shape in shapes]
    assert min(tokens) <= 16
    assert max(tokens) >= 256
    assert held_out(LARGE, 40, seed + 100) != shapes
