"""Cores and memory are promised to one worker each."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.worker_places import NoPlace, WorkerPlaces

PARTS = [(0, 1), (2, 3), (4,)]


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=30))
@settings(deadline=None, max_examples=100)
def test_no_core_has_two_workers_and_none_is_lost(happenings: list[int | None]) -> None:
    """None: somebody wants a place; a number: whoever has that place leaves."""
    places = WorkerPlaces(PARTS, each_bytes=1)
    taken: list[tuple[int, ...]] = []
    for happening in happenings:
        if happening is not None:
            if happening < len(taken):
                places.give_back(taken.pop(happening))
            continue
        place = places.take(0, 100)
        if isinstance(place, NoPlace):
            assert sorted(taken) == PARTS
        else:
            assert place not in taken
            taken.append(place)


def test_memory_is_counted_for_those_who_have_not_taken_theirs_yet() -> None:
    places = WorkerPlaces(PARTS, each_bytes=2**30)
    free = 3 * 2**30
    assert places.take(2, free) == (0, 1)
    refused = places.take(3, free)
    assert refused == NoPlace(
        "kv.memory_bytes = 1GiB is more than is free beside 3 that start: 3.0GiB"
    )
    assert places.take(0, free) == (2, 3), "who was refused has taken nothing"


def test_cores_that_can_t_be_told_apart_are_still_counted() -> None:
    places = WorkerPlaces([(), ()], each_bytes=1)
    assert [places.take(0, 9), places.take(0, 9)] == [(), ()]
    assert isinstance(places.take(0, 9), NoPlace)
