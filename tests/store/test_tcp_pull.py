"""Pages over real sockets: what is good is what was offered; all else is a miss, in time."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owner_process import reassign, shape_of
from tcp_kit import (
    PAGE_BYTES,
    PAGES,
    TIMEOUT_S,
    OwnerProcess,
    offered,
    owner_process,
    reading,
    sealed_region,
    serving,
    wrong,
)

from antiphon.errors import BugError
from antiphon.store.transfer import Miss, OwnedRegion, Part
from antiphon.store.transfer.tcp import PageClient
from antiphon.store.transfer.tcp.reading import Reading
from antiphon.types import OfferedPage, PagePull

THIRDS = tuple(
    Part(at * PAGE_BYTES // 3, (at + 1) * PAGE_BYTES // 3, last=at == 2) for at in range(3)
)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "encrypted"])
def owner(request: pytest.FixtureRequest) -> Iterator[OwnerProcess]:
    with owner_process(sealed=request.param) as process:
        yield process


@pytest.fixture(scope="module")
def own() -> OwnedRegion:
    return OwnedRegion(shape_of(PAGES, PAGE_BYTES))


@pytest.fixture(scope="module")
def client(owner: OwnerProcess, own: OwnedRegion) -> Iterator[PageClient]:
    with reading(owner.access, own) as made:
        yield made


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, PAGES - 1), st.integers(0, PAGES - 1)), max_size=PAGES
    ).map(lambda some: list({target: (source, target) for source, target in some}.values())),
    cut=st.booleans(),
)
def test_any_pages_come_into_any_others(
    client: PageClient, own: OwnedRegion, pairs: list[tuple[int, int]], cut: bool
) -> None:
    own.content[:] = 0
    pulls = [PagePull(offered([source])[0].source, target) for source, target in pairs]
    good = client.pull(pulls, TIMEOUT_S, parts=THIRDS if cut else ())
    assert good == (True,) * len(pulls)
    assert wrong(own, pulls, good) == 0
    targets = {target for _, target in pairs}
    table = own.content.reshape(PAGES, -1)
    assert not any(table[page].any() for page in range(PAGES) if page not in targets)
    assert all(own.generations[target] % 2 == 1 for target in targets)


def test_only_what_is_not_what_was_offered_is_missed(client: PageClient, own: OwnedRegion) -> None:
    before = client.missed.copy()
    pulls = offered(range(6))
    bad = [
        PagePull(OfferedPage(0, 4, 0), 6),
        PagePull(OfferedPage(PAGES, 2, 0), 7),
        PagePull(OfferedPage(1, 3, 0), 8),
        PagePull(OfferedPage(2, 2, 99), 9),
        PagePull(OfferedPage(2**70, 2, 0), 10),
        PagePull(OfferedPage(3, 0, 0), 11),
    ]
    good = client.pull(pulls + bad, TIMEOUT_S)
    assert good == (True,) * 6 + (False,) * 6
    assert wrong(own, pulls, good[:6]) == 0
    missed = client.missed - before
    assert missed == {Miss.STALE: 1, Miss.IMPOSSIBLE: 4, Miss.CORRUPT: 1}


def test_a_target_that_does_not_exist_is_a_bug(client: PageClient) -> None:
    with pytest.raises(BugError, match=f"target {PAGES}"):
        client.pull([PagePull(OfferedPage(0, 2, 0), PAGES)], TIMEOUT_S)


def test_parts_are_announced_in_order_and_the_last_when_all_is_proven(
    client: PageClient, own: OwnedRegion
) -> None:
    own.content[:] = 0
    pulls, told = offered(range(PAGES)), []
    words = own.content.view(np.uint64).reshape(PAGES, 3, -1)

    def here(parts: int) -> None:
        told.append(parts)
        assert (words[:, :parts] != 0).all(), "all pages' parts are there already"

    assert all(client.pull(pulls, TIMEOUT_S, parts=THIRDS, on_part=here))
    assert told == sorted(set(told))
    assert told[-1] == 3
    told.clear()
    pulls[5] = PagePull(OfferedPage(5, 2, 12345), 5)
    good = client.pull(pulls, TIMEOUT_S, parts=THIRDS, on_part=here)
    assert [at for at, is_good in enumerate(good) if not is_good] == [5]
    assert 3 not in told


def test_pulls_of_several_threads_at_once(owner: OwnerProcess) -> None:
    regions = [OwnedRegion(shape_of(PAGES, PAGE_BYTES)) for _ in range(1)]
    own, outcomes = regions[0], []
    with reading(owner.access, own) as client:

        def some(first: int) -> None:
            pulls = offered(range(first, first + 3))
            outcomes.append(wrong(own, pulls, client.pull(pulls, TIMEOUT_S)) == 0)

        threads = [threading.Thread(target=some, args=(3 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [True] * 4
        assert client.pulled == PAGES


# ── I19 over the network ─────────────────────────────────────────────────────────────────────────


def wrong_pages(until) -> tuple[int, PageClient]:
    """Pull from an owner that reassigns all the time; how many good pages were wrong."""
    owner, own = sealed_region(), OwnedRegion(shape_of(PAGES, PAGE_BYTES))
    stop, count = threading.Event(), 0

    def restless() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            reassign(owner, turn % PAGES, corrupt=turn % 5 == 0)

    work = threading.Thread(target=restless)
    with serving(owner) as server, reading(server.admit(), own) as client:
        work.start()
        try:
            ends = time.monotonic() + 60
            while not until(count, client):
                assert time.monotonic() < ends, f"{count} wrong, {client.pulled}, {client.missed}"
                pulls = [
                    pull
                    for page, generation in enumerate(owner.generations.tolist())
                    if generation % 2 == 0
                    for pull in offered([page], generation)
                ]
                count += wrong(own, pulls, client.pull(pulls, TIMEOUT_S))
        finally:
            stop.set()
            work.join()
    return count, client


def test_what_is_good_is_what_was_offered_while_pages_are_reassigned() -> None:
    def enough(_: int, client: PageClient) -> bool:
        missed = client.missed
        return (
            client.pulled >= 100
            and missed[Miss.CORRUPT] >= 5
            and missed[Miss.STALE] + missed[Miss.OVERTAKEN] >= 20
        )

    count, _ = wrong_pages(enough)
    assert count == 0


def test_control_a_client_that_believes_bytes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reading, "prove", lambda self, group: None)
    monkeypatch.setattr(Reading, "proves_at_once", False)
    count, _ = wrong_pages(lambda count, client: count > 0)
    assert count > 0
