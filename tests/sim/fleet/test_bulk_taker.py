"""Links of a fleet: each carries one hand-over after another."""

import pytest

from antiphon.perf import LinkTime
from antiphon.sim.fleet.bulk_taker import Links


def test_hand_overs_over_other_links_do_not_wait() -> None:
    links = Links(LinkTime(setup_s=0.5, bytes_per_s=100.0), bytes_per_page=10)
    assert links.take("a", "x", 20, 0.0, 1.0) == pytest.approx(2.5)
    assert links.take("b", "y", 20, 0.0, 1.0) == pytest.approx(2.5)


@pytest.mark.parametrize(("owner", "taker"), [("a", "y"), ("b", "x"), ("a", "x")])
def test_hand_overs_that_share_an_end_follow_each_other(owner: str, taker: str) -> None:
    links = Links(LinkTime(setup_s=0.5, bytes_per_s=100.0), bytes_per_page=10)
    links.take("a", "x", 20, 1.0, 1.0)
    assert links.take(owner, taker, 20, 2.0, 1.0) == pytest.approx(3.5 + 2.5)


def test_in_and_out_of_a_worker_are_two_links() -> None:
    links = Links(LinkTime(setup_s=0.0, bytes_per_s=100.0), bytes_per_page=10)
    links.take("a", "x", 20, 0.0, 1.0)
    assert links.take("x", "a", 20, 0.0, 1.0) == pytest.approx(2.0)


def test_a_slow_worker_takes_longer() -> None:
    links = Links(LinkTime(setup_s=1.0, bytes_per_s=100.0), bytes_per_page=10)
    assert links.take("a", "x", 10, 0.0, 3.0) == pytest.approx(6.0)


def test_what_a_store_gives_waits_for_pulls_and_they_for_it() -> None:
    links = Links(LinkTime(setup_s=0.0, bytes_per_s=100.0), bytes_per_page=10)
    assert links.take("p", "d", 10, 0.0, 1.0) == 1.0
    assert links.free_at(("in", "d"), 0.5) == 1.0
    assert links.carry((("in", "d"),), 2.0, 0.5) == 3.0
    assert links.free_at(("in", "d"), 4.0) == 4.0
    assert links.free_at(("out", "d"), 0.5) == 0.5
    assert links.take("p", "d", 10, 2.0, 1.0) == 4.0


def test_links_of_workers_that_come_and_go_are_forgotten_and_busy_ones_are_not() -> None:
    links = Links(LinkTime(setup_s=0.0, bytes_per_s=100.0), bytes_per_page=10)
    busy_until = links.take("long", "x", 10_000, 0.0, 1.0)
    for number in range(2000):
        links.take(f"p{number}", f"d{number}", 10, float(number) / 2, 1.0)
        assert len(links) < 200
    assert busy_until == 1000.0
    assert links.free_at(("out", "long"), 999.5) == links.free_at(("in", "x"), 999.5) == 1000.0
