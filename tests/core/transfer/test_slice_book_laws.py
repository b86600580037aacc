"""Slices under any history: each is here once, under way once at most, and every pull ends."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.core.transfer import Cut, Paths, Slice, SliceBook
from antiphon.core.transfer.slice_book import TRIES

PATHS, STREAMS = 2, 2
KIB = 1 << 10


class Slices(RuleBasedStateMachine):
    """Drives a book as a client would, and keeps its own account."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.paths = Paths(PATHS, STREAMS)
        self.book = SliceBook(self.paths)
        self.cuts: dict[int, Cut] = {}
        self.deadlines: dict[int, float] = {}
        self.flying: list[tuple[Slice, int]] = []
        self.here: set[tuple[int, int, int]] = set()
        self.proving: list[int] = []
        self.told: dict[int, int] = {}

    def key(self, one: Slice) -> tuple[int, int, int]:
        return one.pull, one.group, one.part

    @rule(
        rows=st.integers(0, 9), parts=st.integers(1, 3), size=st.integers(1, 9), s=st.floats(0, 9)
    )
    def begin(self, rows: int, parts: int, size: int, s: float) -> None:
        ranges = [(part * KIB, (part + 1) * KIB) for part in range(parts)]
        cut = Cut.of(rows, ranges, size * KIB)
        number = self.book.begin(cut, self.now + s)
        assert number not in self.cuts
        self.cuts[number], self.deadlines[number], self.told[number] = cut, self.now + s, 0

    @rule(path=st.integers(0, PATHS - 1), round_trip=st.floats(0, 0.1))
    def connect(self, path: int, round_trip: float) -> None:
        if self.paths.may_connect(path, self.now):
            self.paths.connected(path, round_trip)

    @rule(path=st.integers(0, PATHS - 1))
    def take(self, path: int) -> None:
        one = self.book.take(path, self.now)
        if one is None:
            return
        assert self.book.wanted(one.pull)
        assert self.key(one) not in self.here
        assert self.key(one) not in {self.key(other) for other, _ in self.flying}
        self.flying.append((one, path))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def come(self, data: st.DataObject) -> None:
        one, path = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        arrival = self.book.came(one, path, self.now)
        self.here.add(self.key(one))
        cut = self.cuts[one.pull]
        whole = all((one.pull, one.group, part) in self.here for part in range(len(cut.parts)))
        assert arrival.group == whole
        if whole:
            self.proving.append(one.pull)
        self.heard(one.pull, arrival.parts)

    @precondition(lambda self: self.proving)
    @rule()
    def prove(self) -> None:
        number = self.proving.pop()
        self.heard(number, self.book.proven(number))

    def heard(self, number: int, parts: int) -> None:
        """Parts come in order; none is announced before it is here of all rows."""
        assert parts >= self.told[number]
        self.told[number] = parts
        cut = self.cuts[number]
        for part in range(parts):
            assert all((number, group, part) in self.here for group in range(cut.groups))
        if parts == len(cut.parts):
            assert number not in self.proving

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), refused=st.booleans())
    def fail(self, data: st.DataObject, refused: bool) -> None:
        one, path = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.book.gave_back(one, path, blamed=True)
        self.paths.failed(path, "broke", self.now, refused=refused)

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.expire(self.now)
        for number, deadline in self.deadlines.items():
            assert deadline > self.now or not self.book.wanted(number)

    @precondition(lambda self: self.cuts)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.book.cancel(data.draw(st.sampled_from(sorted(self.cuts))))

    @precondition(lambda self: self.cuts)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Who is over lacks exactly what did not come."""
        number = data.draw(st.sampled_from(sorted(self.cuts)))
        if not self.book.over(number):
            return
        cut = self.cuts.pop(number)
        del self.deadlines[number]
        lacking = [
            group
            for group in range(cut.groups)
            if any((number, group, part) not in self.here for part in range(len(cut.parts)))
        ]
        assert self.book.missing_groups(number) == lacking
        self.book.forget(number)

    @invariant()
    def counts_agree(self) -> None:
        for path, view in enumerate(self.paths.views(self.now)):
            flying = sum(one.bytes for one, on in self.flying if on == path)
            assert view.in_flight_bytes == flying
        for number in self.cuts:
            busy = any(one.pull == number for one, _ in self.flying) or number in self.proving
            assert not (busy and self.book.over(number))

    def teardown(self) -> None:
        """From every state all comes to rest: nothing is left, in no more steps than there are."""
        while self.flying:
            one, path = self.flying.pop()
            self.book.gave_back(one, path, blamed=False)
        while self.proving:
            self.book.proven(self.proving.pop())
        self.now = max([self.now, *self.deadlines.values()])
        self.book.expire(self.now)
        assert self.book.left_bytes == 0
        for number in list(self.cuts):
            assert self.book.over(number)
            self.book.forget(number)
        assert len(self.book) == 0
        assert self.book.next_deadline() is None


Slices.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSlices = Slices.TestCase


def test_a_slice_that_breaks_every_connection_is_left_out() -> None:
    paths = Paths(1, 1)
    book = SliceBook(paths)
    number = book.begin(Cut.of(2, [(0, KIB)], KIB), deadline=1e9)
    now = 0.0
    for _ in range(TRIES):
        now += 100.0
        assert paths.may_connect(0, now)
        paths.connected(0, 0.0)
        bad = book.take(0, now)
        assert bad is not None
        assert bad.group == 0
        book.gave_back(bad, 0, blamed=True)
        paths.failed(0, "broke", now)
    assert paths.may_connect(0, now + 100)
    paths.connected(0, 0.0)
    good = book.take(0, now + 100)
    assert good is not None
    book.came(good, 0, now + 101)
    book.proven(number)
    assert book.over(number)
    assert book.missing_groups(number) == [0]
