"""Networks that break, stall, garble, lose paths: a pull ends in time, never with wrong pages."""

import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from owner_process import shape_of
from tcp_kit import (
    PAGE_BYTES,
    PAGES,
    QUICK,
    TIMEOUT_S,
    OwnerProcess,
    offered,
    owner_process,
    reading,
    wrong,
)
from tcp_relay import TcpRelay, relayed

from antiphon.core.tiers.breaker import BreakerState
from antiphon.store.transfer import Miss, OwnedRegion
from antiphon.store.transfer.mapping import pull_table
from antiphon.store.transfer.tcp import PageClient, StreamLimits
from antiphon.types import DataAccess

MANY = 96
"""Pages of a longer pull: 4.5 MiB."""
NEVER_STALLS = StreamLimits(connect_s=TIMEOUT_S, stall_s=TIMEOUT_S, tick_s=0.01)
"""Where only what breaks is a fault: on a busy machine, a moment without a byte is none."""


@pytest.fixture(scope="module")
def owner() -> Iterator[OwnerProcess]:
    with owner_process(pages=MANY) as process:
        yield process


def through(access: DataAccess, relays: list[TcpRelay]) -> DataAccess:
    return replace(access, endpoints=tuple(relay.endpoint for relay in relays))


def new_own(pages: int = MANY) -> OwnedRegion:
    return OwnedRegion(shape_of(pages, PAGE_BYTES))


def until(what) -> None:
    ends = time.monotonic() + TIMEOUT_S
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.002)


@settings(max_examples=25, deadline=None)
@given(at=st.integers(0, 6 * PAGE_BYTES), sealed=st.booleans())
def test_a_bit_that_was_changed_on_its_way_is_a_miss_or_asked_for_again(
    owner: OwnerProcess, at: int, sealed: bool
) -> None:
    """Wherever it is: in the handshake, a verdict or a page. With encryption nothing is missed."""
    own, pulls = new_own(), offered(range(6))
    with relayed(owner.access) as relays:
        relays[0].garble = at
        access = replace(through(owner.access, relays), sealed=sealed)
        with reading(access, own, QUICK, streams=1) as client:
            good = client.pull(pulls, TIMEOUT_S)
            assert wrong(own, pulls, good) == 0
            handshake = at < 200
            if sealed and not handshake:
                assert all(good), client.problem
            if not all(good) and not handshake:
                assert set(client.missed) <= {
                    Miss.CORRUPT,
                    Miss.STALE,
                    Miss.IMPOSSIBLE,
                    Miss.OVERTAKEN,
                }


def test_connections_that_break_in_the_middle_are_opened_again(owner: OwnerProcess) -> None:
    own, pulls = new_own(), offered(range(MANY))
    with relayed(owner.access) as relays:
        relay = relays[0]
        with reading(through(owner.access, relays), own, NEVER_STALLS) as client:

            def breaking() -> None:
                until(lambda: relay.passed > 20 * PAGE_BYTES)
                relay.break_all()

            work = threading.Thread(target=breaking)
            work.start()
            good = client.pull(pulls, TIMEOUT_S)
            work.join()
            assert all(good), client.problem
            assert wrong(own, pulls, good) == 0


def test_a_connection_that_broke_while_idle_is_opened_again_without_blame(
    owner: OwnerProcess,
) -> None:
    """One stream: of several, some may still be connecting when the pull is over."""
    own, pulls = new_own(), offered(range(MANY))
    with (
        relayed(owner.access) as relays,
        reading(through(owner.access, relays), own, NEVER_STALLS, streams=1) as client,
    ):
        assert all(client.pull(pulls, TIMEOUT_S))
        assert relays[0].connections == 1
        relays[0].break_all()
        good = client.pull(pulls, TIMEOUT_S)
        assert all(good), client.problem
        assert wrong(own, pulls, good) == 0
        assert relays[0].connections == 2
        assert client.paths()[0].failures_total == 0, "a stale connection is nobody's fault"


def test_a_stalled_path_of_two_is_rested_and_the_other_carries_all(owner: OwnerProcess) -> None:
    own, pulls = new_own(), offered(range(MANY))
    with (
        relayed(owner.access, paths=2) as relays,
        reading(through(owner.access, relays), own, QUICK) as client,
    ):
        assert all(client.pull(pulls, TIMEOUT_S))
        relays[1].stall = True
        good = client.pull(pulls, TIMEOUT_S)
        assert all(good)
        assert wrong(own, pulls, good) == 0
        until(lambda: all_come(client, pulls) and rests(client, 1))
        assert client.paths()[0].state is BreakerState.CLOSED
        carried = client.paths()[1].bytes_total
        relays[1].stall = False
        until(lambda: all_come(client, pulls) and carries(client, 1, carried))


def all_come(client: PageClient, pulls) -> bool:
    return all(client.pull(pulls, TIMEOUT_S))


def carries(client: PageClient, path: int, before: int) -> bool:
    view = client.paths()[path]
    return view.state is BreakerState.CLOSED and view.bytes_total > before


def rests(client: PageClient, path: int) -> bool:
    return client.paths()[path].rests_total > 0


@pytest.mark.parametrize("pages", [1, MANY], ids=["one slice", "many"])
def test_a_silent_owner_ends_the_pull_at_its_deadline(owner: OwnerProcess, pages: int) -> None:
    own, pulls = new_own(), offered(range(pages))
    patient = StreamLimits(stall_s=600.0)
    with (
        relayed(owner.access) as relays,
        reading(through(owner.access, relays), own, patient) as client,
    ):
        assert all(client.pull(pulls[:1], TIMEOUT_S))
        relays[0].stall = True
        began = time.monotonic()
        good = client.pull(pulls, 0.2)
        assert not any(good)
        assert 0.19 <= time.monotonic() - began < 300
        assert client.missed == {Miss.UNREACHED: pages}
        before = own.content.copy()
        relays[0].stall = False
        assert all(client.pull(offered([MANY - 1]), TIMEOUT_S))
        last = (MANY - 1) * PAGE_BYTES
        assert (own.content[:last] == before[:last]).all(), "nothing comes late"


@pytest.mark.parametrize("pages", [1, MANY], ids=["one slice", "many"])
def test_a_pull_that_is_stopped_ends_without_its_pages(owner: OwnerProcess, pages: int) -> None:
    own, patient = new_own(), StreamLimits(stall_s=600.0)
    with (
        relayed(owner.access) as relays,
        reading(through(owner.access, relays), own, patient) as client,
    ):
        assert all(client.pull(offered([0]), TIMEOUT_S))
        relays[0].stall = True
        number, reads = client.begin(pull_table(offered(range(pages))), 1e6), []
        work = threading.Thread(target=lambda: reads.append(client.wait(number)))
        work.start()
        until(lambda: client.paths()[0].in_flight_bytes > 0)
        client.stop(number)
        work.join()
        assert not reads[0].good.any()
        assert reads[0].missed == {Miss.UNREACHED: pages}
        relays[0].stall = False
        assert all(client.pull(offered(range(MANY)), TIMEOUT_S))


def test_closing_ends_what_is_under_way(owner: OwnerProcess) -> None:
    own = new_own()
    outcome: list[tuple[bool, ...]] = []
    with relayed(owner.access) as relays:
        relays[0].stall = True
        client = PageClient(through(owner.access, relays), own)
        work = threading.Thread(
            target=lambda: outcome.append(client.pull(offered(range(MANY)), 1e6))
        )
        work.start()
        until(lambda: relays[0].connections > 0)
        client.close()
        work.join()
        assert not any(outcome[0])
        assert not any(client.pull(offered(range(2)), 1e6)), "closed is closed"


def test_an_owner_that_is_killed_and_one_that_takes_its_place() -> None:
    own, pulls = new_own(PAGES), offered(range(PAGES))
    octets = ".".join(str(1 + secrets.randbelow(250)) for _ in range(3))
    endpoint = f"tcp://127.{octets}:0"  # nobody else comes to listen at its port meanwhile
    with owner_process(endpoint) as first, reading(first.access, own, QUICK) as client:
        assert all(client.pull(pulls, TIMEOUT_S))
        first.process.kill()
        first.process.wait()
        assert not any(client.pull(pulls, 2.0))
        assert "can't be reached" in client.problem
        with owner_process(first.access.endpoints[0]):
            good = client.pull(pulls, TIMEOUT_S)
            assert not any(good), "the old key opens nothing of the new life"
            assert "does not take the key" in client.problem


@pytest.mark.parametrize("broken", ["refuse", "stall", "let_in"])
def test_of_two_ways_one_that_never_worked_costs_no_page(owner: OwnerProcess, broken: str) -> None:
    own, pulls = new_own(), offered(range(MANY))
    with relayed(owner.access, paths=2) as relays:
        setattr(relays[1], broken, True)
        limits = replace(QUICK, connect_s=0.5)
        with reading(through(owner.access, relays), own, limits) as client:
            for _ in range(4):
                assert all(client.pull(pulls, TIMEOUT_S)), client.problem
                assert wrong(own, pulls, (True,) * MANY) == 0
            until(lambda: all_come(client, pulls) and rests(client, 1))


def test_handshakes_that_broke_in_the_middle_are_made_again(owner: OwnerProcess) -> None:
    """They look like a refusal, and are none."""
    own, pulls = new_own(), offered(range(4))
    with (
        relayed(owner.access) as relays,
        reading(through(owner.access, relays), own, QUICK) as client,
    ):
        relays[0].break_in = True
        assert not any(client.pull(pulls, 600.0))
        relays[0].break_in = False
        until(lambda: all_come(client, pulls))


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("pages", [1, 12], ids=["one slice", "many"])
def test_bytes_that_trickle_do_not_hold_a_pull_beyond_its_deadline(
    owner: OwnerProcess, pages: int, sealed: bool
) -> None:
    own = new_own()
    with relayed(owner.access) as relays:
        access = replace(through(owner.access, relays), sealed=sealed)
        with reading(access, own, streams=1) as client:
            assert all(client.pull(offered([0]), TIMEOUT_S))
            relays[0].trickle, before = True, relays[0].passed
            good = client.pull(offered(range(pages)), 0.1)
            assert not all(good)
            assert client.missed[Miss.UNREACHED] == good.count(False)
            relays[0].trickle = False
            assert all(client.pull(offered([MANY - 1]), TIMEOUT_S))
            assert relays[0].passed > before


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_bytes_that_trickle_do_not_hold_up_the_end(owner: OwnerProcess, sealed: bool) -> None:
    own, outcome = new_own(), []
    with relayed(owner.access) as relays:
        access = replace(through(owner.access, relays), sealed=sealed)
        client = PageClient(access, own, streams=1)
        assert all(client.pull(offered([0]), TIMEOUT_S))
        relays[0].trickle, before = True, relays[0].passed
        work = threading.Thread(target=lambda: outcome.append(client.pull(offered(range(12)), 1e6)))
        work.start()
        until(lambda: relays[0].passed > before)
        client.close()
        work.join()
        assert not all(outcome[0])
