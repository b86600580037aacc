"""Paths of unequal speed end together, one that fails rests, no queue grows: in virtual time."""

import heapq
import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.tiers.breaker import BreakerState
from antiphon.core.transfer import Cut, Paths, Slice, SliceBook, slice_bytes
from antiphon.core.transfer.paths import FAILURES, FIRST_REST_S, LONGEST_REST_S, QUEUED_S
from antiphon.core.transfer.slice_book import SliceBook as Book

MIB = 1 << 20
PAGE = 64 << 10
STREAMS, OUTSTANDING = 4, 4
STALL_S = 1.0


@dataclass
class Wire:
    """One path: it carries one slice after another. `dead_from`: nothing comes any more, though
    handshakes may get through (`lets_in`)."""

    rate: float
    dead_from: float = float("inf")
    lets_in: bool = False
    free_at: float = 0.0
    most_in_flight: int = 0


@dataclass
class World:
    """A client's streams over wires, in virtual time; `stream` i is of path i // STREAMS."""

    wires: list[Wire]
    now: float = 0.0
    connects: list[float] = field(default_factory=list)
    """When one was tried in vain."""
    stalls: list[float] = field(default_factory=list)
    """When a connection was found to bring nothing."""
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.paths = Paths(len(self.wires), STREAMS)
        self.book: Book = SliceBook(self.paths)
        self.events: list[tuple[float, int, str, int, Slice | None]] = []
        self.connected = [False] * (len(self.wires) * STREAMS)
        self.asked: list[list[Slice]] = [[] for _ in self.connected]
        self.count = 0

    def at(self, time: float, what: str, stream: int, one: Slice | None = None) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, what, stream, one))

    def pull(self, pages: int, timeout_s: float) -> int:
        rate = self.paths.stream_bytes_per_s(self.now)
        size = slice_bytes(pages * PAGE, len(self.connected), rate)
        self.ended_at = None
        return self.book.begin(Cut.of(pages, [(0, PAGE)], size), self.now + timeout_s)

    def run(self, pull: int) -> None:
        """Until the pull is over."""
        while True:
            self.book.expire(self.now)
            if self.book.over(pull):
                self.ended_at = self.now
                return
            connected = [self.turn(stream) for stream in range(len(self.connected))]
            if any(connected):
                continue
            times = [event[0] for event in self.events[:1]]
            times += [at for at in (self.book.next_deadline(),) if at is not None]
            for path in range(len(self.wires)):
                again = self.paths.try_again_at(path)
                times += [again] if again is not None and again > self.now else []
            self.now = max(self.now, min(times))
            while self.events and self.events[0][0] <= self.now:
                self.happen(*heapq.heappop(self.events)[2:])

    def turn(self, stream: int) -> bool:
        """Whether it connected."""
        path = stream // STREAMS
        wire = self.wires[path]
        if not self.connected[stream]:
            if self.book.left_bytes and self.paths.may_connect(path, self.now):
                if self.now >= wire.dead_from and not wire.lets_in:
                    self.connects.append(self.now)
                    self.paths.failed(path, "no way", self.now)
                else:
                    self.connected[stream] = True
                    self.paths.connected(path, 0.001)
            return self.connected[stream]
        while len(self.asked[stream]) < OUTSTANDING and (one := self.book.take(path, self.now)):
            self.asked[stream].append(one)
            wire.free_at = max(wire.free_at, self.now) + one.bytes / wire.rate
            view = self.paths.views(self.now)[path]
            wire.most_in_flight = max(wire.most_in_flight, view.in_flight_bytes)
            if wire.free_at < wire.dead_from:
                self.at(wire.free_at, "came", stream, one)
            else:
                self.at(max(self.now, wire.dead_from) + STALL_S, "stalled", stream, one)
        return False

    def happen(self, what: str, stream: int, one: Slice | None) -> None:
        path = stream // STREAMS
        assert one is not None
        if one not in self.asked[stream]:
            return
        if what == "came":
            self.asked[stream].remove(one)
            if self.book.came(one, path, self.now).group:
                self.book.proven(one.pull)
            return
        for lost in self.asked[stream]:
            self.book.gave_back(lost, path, blamed=lost is one, lost=True)
        self.asked[stream].clear()
        self.connected[stream] = False
        self.stalls.append(self.now)
        self.paths.failed(path, "stalled", self.now)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(20, 2000), min_size=1, max_size=4), st.integers(500, 2000))
def test_paths_of_unequal_speed_end_together(rates: list[int], pages: int) -> None:
    """Once speeds are known, a pull takes what all paths together need, and two slices more."""
    world = World([Wire(rate * 1e6) for rate in rates])
    world.run(world.pull(pages, 1e6))
    began, size = world.now, pages * PAGE
    second = world.pull(pages, 1e6)
    world.run(second)
    assert not world.book.missing_groups(second)
    assert world.ended_at is not None
    took = world.ended_at - began
    ideal = size / sum(rates) / 1e6
    one_slice = 4 * MIB / max(rates) / 1e6
    assert took <= 1.1 * ideal + 2 * one_slice + QUEUED_S


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(20, 2000), min_size=1, max_size=3), st.integers(100, 2000))
def test_no_queue_grows(rates: list[int], pages: int) -> None:
    """What is under way is a slice a stream, or what the path carries in `QUEUED_S` and a trip."""
    world = World([Wire(rate * 1e6) for rate in rates])
    for _ in range(2):
        world.run(world.pull(pages, 1e6))
    for wire in world.wires:
        in_time = wire.rate * (QUEUED_S + 0.001)
        assert wire.most_in_flight <= max(STREAMS * 4 * MIB, 1.05 * in_time)


@settings(max_examples=40, deadline=None)
@given(st.integers(50, 500), st.floats(0.0, 0.5), st.integers(500, 1500), st.booleans())
def test_a_path_of_two_that_dies_costs_its_stall_and_no_page(
    rate: int, dies: float, pages: int, lets_in: bool
) -> None:
    world = World([Wire(rate * 1e6), Wire(rate * 1e6, dead_from=dies, lets_in=lets_in)])
    pull = world.pull(pages, 1e6)
    world.run(pull)
    assert not world.book.missing_groups(pull)
    assert world.ended_at is not None
    assert world.ended_at <= pages * PAGE / rate / 1e6 + 2 * STALL_S + 0.5


def test_a_dead_path_is_tried_ever_more_rarely() -> None:
    world = World([Wire(20e6), Wire(20e6, dead_from=0.0)])
    world.run(world.pull(20_000, 1e6))
    waits = [later - before for before, later in pairwise(world.connects)]
    probes = [wait for wait in waits if wait > 0]
    assert len(probes) > 5
    assert all(later >= 0.99 * before for before, later in pairwise(probes))
    assert max(probes) <= 1.1 * LONGEST_REST_S


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([0.1, 1.0, 10.0]), st.integers(1, 300), st.integers(10, 20))
def test_a_path_that_only_lets_in_is_tried_ever_more_rarely(
    faster: float, pages: int, pulls: int
) -> None:
    """Handshakes that succeed are no reason to trust it: most pulls do not notice it."""
    world = World([Wire(200e6), Wire(200e6 * faster, dead_from=0.0, lets_in=True)])
    for _ in range(pulls):
        pull = world.pull(pages, 1e6)
        world.run(pull)
        assert not world.book.missing_groups(pull)
        world.now += 0.5
    moments = sorted(set(world.stalls))
    rests = [later - before for before, later in pairwise(moments[1:])]
    assert all(later >= 0.99 * before for before, later in pairwise(rests))
    assert len(moments) <= 2 + math.log2(1 + world.now / FIRST_REST_S)


def test_a_path_that_carries_again_after_its_rest_is_used_like_before() -> None:
    wire = Wire(200e6, dead_from=0.0, lets_in=True)
    world = World([Wire(200e6), wire])
    while not world.paths.views(world.now)[1].rests_total:
        world.run(world.pull(200, 1e6))
        assert world.now < LONGEST_REST_S
    wire.dead_from = float("inf")
    carried = 0
    while carried < 4000 * PAGE:
        world.run(world.pull(4000, 1e6))
        assert world.now < 2 * LONGEST_REST_S
        carried = world.paths.views(world.now)[1].bytes_total
    assert world.paths.views(world.now)[1].state is BreakerState.CLOSED


@pytest.mark.parametrize("blamed", [True, False])
def test_a_slice_that_failed_on_a_path_goes_over_another_one(blamed: bool) -> None:
    paths = Paths(2, STREAMS)
    book = SliceBook(paths)
    book.begin(Cut.of(2, [(0, PAGE)], PAGE), deadline=100.0)
    for path in range(2):
        paths.connected(path, 0.0)
    first = book.take(1, 0.0)
    assert first is not None
    book.gave_back(first, 1, blamed=blamed, lost=True)
    paths.failed(1, "stalled", 1.0)
    other = book.take(1, 1.0)
    assert other is not None
    assert other.group != first.group
    assert book.take(1, 1.0) is None
    assert book.take(0, 1.0) == first


def test_without_any_path_a_pull_ends_when_nothing_can_come_any_more() -> None:
    world = World([Wire(1e6, dead_from=0.0)])
    pull = world.pull(10, 20.0)
    world.run(pull)
    assert len(world.book.missing_groups(pull)) > 0
    assert world.ended_at is not None
    assert world.ended_at <= 20.0


def refused(paths: Paths, path: int, now: float) -> None:
    for _ in range(FAILURES):
        assert paths.may_connect(path, now)
        paths.failed(path, "the server does not take the key", now, refused=True)


def test_whom_the_peer_refuses_everywhere_is_told_before_its_deadline() -> None:
    paths = Paths(2, 1)
    book = SliceBook(paths)
    pull = book.begin(Cut.of(1, [(0, PAGE)], PAGE), deadline=100.0)
    refused(paths, 0, 1.0)
    book.expire(1.0)
    assert book.wanted(pull)
    refused(paths, 1, 1.0)
    book.expire(1.0)
    assert book.over(pull)
    assert paths.problem == "the server does not take the key"


def test_a_handshake_that_broke_beside_others_connections_is_no_refusal() -> None:
    """What cuts all connections at once cuts some in the middle of their handshake."""
    paths = Paths(1, 2)
    book = SliceBook(paths)
    pull = book.begin(Cut.of(1, [(0, PAGE)], PAGE), deadline=100.0)
    paths.failed(0, "the connection broke", 1.0)
    paths.failed(0, "the server does not take the key", 1.0, refused=True)
    book.expire(1.0)
    assert book.wanted(pull)
    now = paths.hopeless_until(1.0)
    assert paths.may_connect(0, now)
    paths.failed(0, "the server does not take the key", now, refused=True)
    book.expire(now)
    assert book.over(pull)


@given(st.integers(1, 3), st.integers(0, 8))
def test_a_refusal_is_not_for_ever(count: int, again: int) -> None:
    """A handshake that breaks in the middle looks like one: the next pull after a rest tries."""
    paths, now = Paths(count, 1), 1.0
    book = SliceBook(paths)
    for path in range(count):
        refused(paths, path, now)
    for _ in range(again):
        now = max(at for path in range(count) if (at := paths.try_again_at(path)) is not None)
        for path in range(count):
            assert paths.may_connect(path, now)
            paths.failed(path, "the server does not take the key", now, refused=True)
    now = paths.hopeless_until(now)
    pull = book.begin(Cut.of(1, [(0, PAGE)], PAGE), deadline=now + 0.001)
    book.expire(now)
    assert book.wanted(pull)
    assert paths.may_connect(0, now)
    book.expire(now)
    assert book.wanted(pull), "somebody tries"
    paths.connected(0, 0.0)
    one = book.take(0, now)
    assert one is not None
    assert book.came(one, 0, now).group
    assert not paths.refused(now)


@pytest.mark.parametrize("layers", [1, 3])
def test_the_first_part_of_all_pages_comes_first(layers: int) -> None:
    paths = Paths(1, 1)
    book = SliceBook(paths)
    paths.connected(0, 0.0)
    parts = [(256 * part, 256 * (part + 1)) for part in range(layers)]
    book.begin(Cut.of(10, parts, 1024), deadline=9.0)
    taken: list[Slice] = []
    while (one := book.take(0, 0.0)) is not None:
        taken.append(one)
        if book.came(one, 0, 0.0).group:
            book.proven(one.pull)
    assert [one.part for one in taken] == sorted(one.part for one in taken)
    assert len(taken) == 3 * layers
