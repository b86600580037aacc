"""Cores are split in order and equally; workers are named after their roles."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.worker_spec import split_cores, worker_specs
from antiphon.errors import BugError
from antiphon.types import ClusterConfig, Role

CORES = st.lists(st.integers(0, 500), unique=True, max_size=24)


@given(CORES, st.integers(1, 12))
@settings(deadline=None, max_examples=200)
def test_parts_are_equal_and_in_order(cores: list[int], workers: int) -> None:
    parts = split_cores(cores, workers)
    assert len(parts) == workers
    if not cores:
        assert set(parts) == {()}
    elif len(cores) >= workers:
        assert [core for part in parts for core in part] == cores
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
    else:
        assert all(len(part) == 1 for part in parts)
        shared = Counter(core for part in parts for core in part)
        assert list(shared) == cores
        assert max(shared.values()) - min(shared.values()) <= 1


@pytest.mark.parametrize(
    ("cores", "workers", "parts"),
    [
        ((0, 1), 2, ((0,), (1,))),
        ((0, 1, 2, 3, 4), 2, ((0, 1, 2), (3, 4))),
        ((7, 3), 3, ((7,), (7,), (3,))),
        ((), 2, ((), ())),
    ],
)
def test_examples(cores: tuple[int, ...], workers: int, parts: tuple[tuple[int, ...], ...]) -> None:
    assert split_cores(cores, workers) == parts


def test_nobody_to_split_among() -> None:
    with pytest.raises(BugError):
        split_cores((0,), 0)


def test_without_words_there_is_one_worker_that_does_both() -> None:
    [spec] = worker_specs(ClusterConfig(), ())
    assert (spec.id, spec.role, spec.cores) == ("mixed-0", Role.MIXED, ())


def test_names_count_within_a_role() -> None:
    specs = worker_specs(ClusterConfig(prefill=2, decode=1, mixed=1), (0, 1, 2, 3))
    assert [(spec.id, spec.role.value, spec.cores) for spec in specs] == [
        ("prefill-0", "prefill", (0,)),
        ("prefill-1", "prefill", (1,)),
        ("decode-0", "decode", (2,)),
        ("mixed-0", "mixed", (3,)),
    ]


def test_beside_prefill_and_decode_there_is_no_mixed_worker_unless_asked_for() -> None:
    roles = [spec.role for spec in worker_specs(ClusterConfig(prefill=1, decode=1), ())]
    assert roles == [Role.PREFILL, Role.DECODE]
