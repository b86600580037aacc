"""Pages of encoded blocks: free or of one blob, always; none is given away while it is read."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.core.store_pool import BlobShelf
from antiphon.errors import BugError
from antiphon.types import LeaseId

PAGES = 8
NAMES = st.integers(0, 5)
LEASES = st.integers(0, 3)


class Shelf(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shelf: BlobShelf[int] = BlobShelf(PAGES)
        self.now = 0.0
        self.writing: set[int] = set()
        self.held: dict[LeaseId, tuple[float, list[int]]] = {}

    def busy(self) -> dict[int, set[int]]:
        """Pages of what is held or written, by name."""
        names = {*self.writing, *(name for _, mine in self.held.values() for name in mine)}
        return {name: self.shelf.pages_of([name]) for name in names}

    @rule(name=NAMES, count=st.integers(1, PAGES))
    def place(self, name: int, count: int) -> None:
        if name in self.shelf:
            with pytest.raises(BugError):
                self.shelf.place(name, count, self.now)
            return
        self.held = {lease: one for lease, one in self.held.items() if one[0] > self.now}
        before = self.busy()
        there = {one: self.shelf.pages_of([one]) for one in range(6)}
        pages = self.shelf.place(name, count, self.now)
        taken = {page for mine in before.values() for page in mine}
        if pages is None:
            assert PAGES - len(taken) < count
            assert there == {one: self.shelf.pages_of([one]) for one in range(6)}, "nothing went"
            return
        assert len(set(pages)) == count
        assert not set(pages) & taken
        self.writing.add(name)

    @rule(name=NAMES, good=st.booleans())
    def written(self, name: int, good: bool) -> None:
        if name in self.writing:
            self.writing.remove(name)
            self.shelf.written(name)
            if not good:
                self.shelf.discard(name)

    @rule(names=st.lists(NAMES, max_size=3, unique=True), lease=LEASES, ttl=st.integers(1, 3))
    def hold(self, names: list[int], lease: int, ttl: int) -> None:
        id_ = LeaseId(str(lease))
        there = [one for one in names if self.shelf.get(one) and one not in self.writing]
        if id_ not in self.held:
            self.shelf.hold(there, id_, self.now + ttl)
            self.held[id_] = (self.now + ttl, there)

    @rule(lease=LEASES)
    def release(self, lease: int) -> None:
        self.held.pop(LeaseId(str(lease)), None)
        self.shelf.release(LeaseId(str(lease)))

    @rule()
    def later(self) -> None:
        self.now += 1
        self.shelf.expire(self.now)
        self.held = {lease: one for lease, one in self.held.items() if one[0] > self.now}

    @invariant()
    def held_blobs_are_there(self) -> None:
        assert all(self.busy().values())

    @invariant()
    def pages_add_up(self) -> None:
        of_blobs = [self.shelf.pages_of([name]) for name in range(6)]
        assert (
            sum(map(len, of_blobs)) == len(set[int]().union(*of_blobs)) == PAGES - self.shelf.free
        )


def test_nothing_goes_for_a_blob_that_finds_no_room() -> None:
    shelf: BlobShelf[str] = BlobShelf(4)
    shelf.place("written", 2, 0.0)
    shelf.place("idle", 2, 0.0)
    shelf.written("idle")
    assert shelf.place("large", 4, 0.0) is None
    assert shelf.get("idle")
    assert shelf.place("small", 2, 0.0) is not None
    assert "idle" not in shelf


TestShelf: Callable = Shelf.TestCase
TestShelf.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)  # type: ignore[attr-defined]
