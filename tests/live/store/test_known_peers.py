"""What is believed of where a store is: itself first, then the configuration, then others."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.store_pool.peer_address import MOST_PEERS, PeerAddress
from antiphon.live.store.pool.known_peers import KnownPeers, Said
from antiphon.types import StoreName

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
BOX = StoreName("box1")


@dataclass
class Link:
    address: PeerAddress
    present: bool = False

    async def run(self) -> None:
        await asyncio.Event().wait()


class Call:
    """Of a link, as a task is."""

    def cancel(self) -> None:
        pass


def known(on_forgotten: Callable[[StoreName], None] = lambda name: None) -> KnownPeers:
    def spawn(work: Coroutine[Any, Any, None]) -> Call:
        work.close()
        return Call()

    link_to: Callable[..., Any] = Link
    return KnownPeers(StoreName("me"), link_to, spawn, on_forgotten)  # type: ignore[arg-type]


def at(peers: KnownPeers) -> set[str]:
    return {f"{host}:{port}" for host, port in peers.links[BOX].address.paths}


def text(*paths: str) -> str:
    return f"{BOX}@{','.join(paths)}"


def test_gossip_takes_no_path_away() -> None:
    """Whoever is heard last."""
    for first, second in permutations([text(A), text(A, B)]):
        peers = known()
        for one in (first, second, first):
            peers.hear_of(one, Said.BY_OTHERS)
        assert at(peers) == {A, B}


def test_a_call_that_is_as_good_goes_on() -> None:
    peers = known()
    peers.hear_of(text(A, B), Said.BY_OTHERS)
    link = peers.links[BOX]
    for said in Said:
        for one in (text(A), text(A, B), text(B, A)):
            peers.hear_of(one, said)
    assert peers.links[BOX] is link
    peers.hear_of(text(C), Said.BY_OTHERS)
    assert at(peers) == {A, B}, "it has said so itself"


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(Said),
            st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3, unique=True),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_who_knows_better_is_believed(heard: list[tuple[Said, list[str], bool]]) -> None:
    """And who is there is called on where it is."""
    peers, best = known(), Said.BY_OTHERS
    for said, paths, present in heard:
        before = at(peers) if BOX in peers.links else set[str]()
        there = bool(before) and peers.links[BOX].present
        peers.hear_of(text(*paths), said)
        after = at(peers)
        if there or (before and said < best):
            assert after == before
        elif not set(paths) <= before:
            assert after == set(paths)
        assert not after < before
        if set(paths) <= before:
            best = max(best, said)
        elif after == set(paths):
            best = said
        peers.links[BOX].present = present  # type: ignore[misc]


def test_a_configured_store_makes_no_room_for_hearsay() -> None:
    peers = known()
    for number in range(MOST_PEERS - 1):
        peers.hear_of(f"c{number}@{A}", Said.IN_CONFIG)
    for number in range(10):
        peers.hear_of(f"g{number}@{A}", Said.BY_OTHERS)
    names = set(peers.links)
    assert len(names) == MOST_PEERS
    assert {f"c{number}" for number in range(MOST_PEERS - 1)} <= names
    peers.hear_of(f"own@{A}", Said.BY_ITSELF, name=StoreName("own"))
    assert "own" in peers.links
    assert {f"c{number}" for number in range(MOST_PEERS - 1)} <= set(peers.links)


def test_who_makes_room_is_forgotten() -> None:
    gone: list[str] = []
    peers = known(gone.append)
    for number in range(MOST_PEERS + 10):
        peers.hear_of(f"g{number}@{A}", Said.BY_OTHERS)
    assert len(gone) == 10
    assert not set(gone) & set(peers.links)
