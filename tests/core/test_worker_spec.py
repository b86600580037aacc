"""Cores are split in order and equally; workers are named after their roles."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.config import as_mapping, build
from antiphon.core.worker_spec import (
    most_workers,
    spare_cores,
    split_cores,
    with_budget,
    worker_specs,
)
from antiphon.errors import BugError, ConfigError
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


@given(CORES.filter(bool), st.integers(1, 6), st.integers(0, 9))
@settings(deadline=None, max_examples=100)
def test_workers_that_may_come_have_parts_as_large_as_those_that_are_there(
    cores: list[int], workers: int, more: int
) -> None:
    """One device is as good as another, whenever its worker was started."""
    cluster, most = ClusterConfig(mixed=workers), workers + more
    first = [spec.cores for spec in worker_specs(cluster, cores, most)]
    spare = spare_cores(cluster, cores, most)
    assert (len(first), len(spare)) == (workers, more)
    assert (*first, *spare) == split_cores(cores, most)


def test_without_a_planner_that_acts_the_workers_share_all_cores() -> None:
    for mode, most in (("off", 2), ("advise", 2), ("act", 3)):
        planner = {"mode": mode, "budget": 3}
        config = build({"cluster": {"prefill": 1, "decode": 1}, "planner": planner})
        assert most_workers(config) == most


@pytest.mark.parametrize(
    ("planner", "cores", "budget"),
    [
        ({"mode": "act"}, 6, 6),
        ({"mode": "act"}, 1, 2),
        ({"mode": "act", "least": 3}, 2, 6),
        ({"mode": "act", "budget": 4}, 8, 4),
        ({"mode": "act"}, 1000, 256),
        ({"mode": "advise"}, 0, 2),
        ({"mode": "off"}, 6, None),
    ],
)
def test_without_a_budget_there_is_one_worker_a_core(
    planner: dict[str, object], cores: int, budget: int | None
) -> None:
    config = build({"cluster": {"prefill": 1, "decode": 1}, "planner": planner})
    given = with_budget(config, range(cores))
    assert given.planner.budget == budget
    assert build(as_mapping(given)) == given


@pytest.mark.parametrize(
    ("planner", "cores", "most"),
    [({"budget": 64}, 2, 2), ({"budget": 4, "least": 1}, 1, 2), ({"budget": 7, "least": 3}, 2, 6)],
)
def test_more_workers_than_cores_are_refused_with_what_it_would_need(
    planner: dict[str, object], cores: int, most: int
) -> None:
    """But for those that are asked for anyway, who share cores."""
    cluster = {"prefill": 1, "decode": 1}
    given = {**planner, "mode": "act"}
    wanted = planner["budget"]
    with pytest.raises(ConfigError, match=f"lower it to {most} .* or give it {wanted} cores"):
        with_budget(build({"cluster": cluster, "planner": given}), range(cores))
    for change in ({"mode": "advise"}, {"budget": most}):
        config = build({"cluster": cluster, "planner": given | change})
        assert with_budget(config, range(cores)) == config


def test_where_cores_can_t_be_told_a_budget_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"planner\.budget: .* \(--budget\)"):
        with_budget(build({"planner": {"mode": "act"}}), ())
