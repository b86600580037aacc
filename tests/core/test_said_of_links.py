"""What is reported of links is shown to people: only what can be, and all that can be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.said_of_links import told_problem, wrong_in_links, wrong_in_pool
from antiphon.types import (
    MOST_LINKS,
    MOST_PATHS,
    MOST_PROBLEM_CHARS,
    LinkUse,
    PathState,
    PathUse,
    PeerState,
    PoolPeer,
    StoreName,
    Transport,
)

PATH = PathUse(address="10.0.0.1:7000", state=PathState.OPEN, bytes_per_s=1e9)
LINK = LinkUse(owner="prefill-0", transport=Transport.TCP, bytes_total=7, paths=(PATH,))
PEER = PoolPeer(
    name=StoreName("box2"), address="box2@10.0.0.2:7420", state=PeerState.HERE, paths=(PATH,)
)


@given(st.text())
def test_whatever_went_wrong_can_be_told_on_a_line(text: str) -> None:
    problem = told_problem(text)
    assert problem.isprintable()
    assert len(problem) <= MOST_PROBLEM_CHARS
    path = replace(PATH, problem=problem)
    assert not wrong_in_links([replace(LINK, paths=(path,))])
    assert not wrong_in_pool([replace(PEER, problem=problem, paths=(path,))])


@pytest.mark.parametrize(
    "links",
    [
        [LINK] * (MOST_LINKS + 1),
        [replace(LINK, owner="\x1b[2J")],
        [replace(LINK, owner="a" * 1000)],
        [replace(LINK, bytes_total=-1)],
        [replace(LINK, paths=(PATH,) * (MOST_PATHS + 1))],
        [replace(LINK, paths=(replace(PATH, address="10.0.0.1\n"),))],
        [replace(LINK, paths=(replace(PATH, bytes_per_s=float("nan")),))],
        [replace(LINK, paths=(replace(PATH, bytes_per_s=-1.0),))],
        [replace(LINK, paths=(replace(PATH, failures_total=2**70),))],
        [replace(LINK, paths=(replace(PATH, problem="x" * (MOST_PROBLEM_CHARS + 1)),))],
    ],
)
def test_links_that_can_not_be(links: list[LinkUse]) -> None:
    assert not wrong_in_links([LINK])
    assert wrong_in_links(links)


@pytest.mark.parametrize(
    "peer",
    [
        replace(PEER, name=StoreName("Box 2")),
        replace(PEER, address="\u202e"),
        replace(PEER, blocks=-1),
        replace(PEER, read_bytes_total=2**63),
        replace(PEER, bytes_per_s=float("inf")),
        replace(PEER, problem="\n"),
        replace(PEER, paths=(replace(PATH, rests_total=-1),)),
    ],
)
def test_peers_that_can_not_be(peer: PoolPeer) -> None:
    assert not wrong_in_pool([PEER])
    assert wrong_in_pool([peer])
