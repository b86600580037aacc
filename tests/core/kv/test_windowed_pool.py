"""I52 and I3 of pages that belong to groups of layers: counts, names, and what a match holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from antiphon.core.kv import OutOfMemory, PageGroups, Reservation, WindowedPagePool
from antiphon.types import NO_PAGE, BlockRemoved, BlockStored, KvEvent, KvGroup

PAGE_TOKENS, BLOCK_TOKENS = 2, 4
TOTAL = 40


def key(path: tuple[int, ...]) -> bytes:
    return repr(path).encode()


def chain(path: tuple[int, ...]) -> list[bytes]:
    return [key(path[: depth + 1]) for depth in range(len(path))]


class Table:
    """Somebody's pages, and the path of blocks that they hold."""

    def __init__(self, pages: list[int], path: tuple[int, ...]) -> None:
        self.pages, self.path = pages, path


class WindowedMachine(RuleBasedStateMachine):
    """Against what was written to each page, and what a walk over the definition says is needed."""

    @initialize(
        plain=st.booleans(),
        windows=st.lists(
            st.tuples(st.sampled_from([1, 4, 5, 9]), st.integers(1, 2)), min_size=1, max_size=2
        ),
    )
    def build(self, plain: bool, windows: list[tuple[int, int]]) -> None:
        kinds = [KvGroup()] if plain else []
        kinds += [KvGroup(size, pages) for size, pages in windows]
        self.groups = PageGroups(kinds, page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS)
        self.windows = [group.window for group in kinds for _ in range(group.pages)]
        self.events: list[KvEvent] = []
        self.pool = WindowedPagePool(TOTAL, self.groups, listen=self.listen)
        self.tables: list[Table] = []
        self.written: dict[int, tuple[bytes, int]] = {}

    def listen(self, event: KvEvent) -> None:
        """Whoever hears of a block may copy it now: all of it is there."""
        self.events.append(event)
        if isinstance(event, BlockStored):
            assert self.pool.match_whole([event.key]).pages == event.pages
            for place, page in enumerate(event.pages):
                assert self.written[page] == (event.key, place)

    def needed(self, place: int, block: int, blocks: int) -> bool:
        """Whether a row behind `blocks` blocks reads that one in this page of an entry."""
        window = self.windows[place % len(self.windows)]
        window = window and max(2, window)
        return not window or (block + 1) * BLOCK_TOKENS > blocks * BLOCK_TOKENS + 1 - window

    def blocks_of(self, table: Table) -> list[list[int]]:
        size = self.groups.block_pages
        return [table.pages[at * size : (at + 1) * size] for at in range(len(table.path))]

    @rule(path=st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple))
    def begin(self, path: tuple[int, ...]) -> None:
        """Take what is found of a path, and pages for one block more."""
        match = self.pool.match(chain(path))
        found, size = len(match.keys), self.groups.block_pages
        assert list(match.keys) == chain(path)[:found] and len(match.pages) == found * size
        for block in range(found):
            for place in range(size):
                page = match.pages[block * size + place]
                assert (page != NO_PAGE) == self.needed(place, block, found)
                if page != NO_PAGE:
                    assert self.written[page] == (match.keys[block], place), "I5"
        before = (self.pool.free_pages, self.pool.held_pages, self.pool.cached_pages)
        taken = self.pool.reserve(size, keep=match)
        if isinstance(taken, OutOfMemory):
            assert taken.available < size
            assert before == (
                self.pool.free_pages,
                self.pool.held_pages,
                self.pool.cached_pages,
            ), "from all groups or from none"
            return
        held = {page for table in self.tables for page in table.pages}
        assert held.isdisjoint(taken.pages)
        new = path[: found + 1] if found < len(path) else (*path, 0)
        self.tables.append(Table([*match.pages, *taken.pages], new))
        self.written |= {page: (key(new), at) for at, page in enumerate(taken.pages)}

    @rule(path=st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple))
    def pull(self, path: tuple[int, ...]) -> None:
        """A whole path comes from elsewhere, but for what nobody behind it reads."""
        size, names = self.groups.block_pages, chain(path)
        places = [
            at for at in range(len(path) * size) if self.needed(at % size, at // size, len(path))
        ]
        taken = self.pool.reserve(len(places))
        if isinstance(taken, OutOfMemory):
            return
        table = Table([NO_PAGE] * len(path) * size, path)
        for at, page in zip(places, taken.pages, strict=True):
            table.pages[at] = page
            self.written[page] = (names[at // size], at % size)
        self.tables.append(table)
        for number, pages in enumerate(self.blocks_of(table)):
            self.pool.commit(names[number], names[number - 1] if number else None, pages)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        pages, names = self.blocks_of(table)[-1], chain(table.path)
        if NO_PAGE in pages or self.pool.match_whole([names[-1]]).pages == tuple(pages):
            return
        if any(self.pool._block_of[page] is not None for page in pages):
            return
        self.pool.commit(names[-1], names[-2] if len(names) > 1 else None, pages)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def pass_by(self, data: st.DataObject) -> None:
        """The windows' pages of blocks that nobody behind the last one reads are given back."""
        table, size = data.draw(st.sampled_from(self.tables)), self.groups.block_pages
        gone: list[int] = []
        for at, page in enumerate(table.pages):
            if page != NO_PAGE and not self.needed(at % size, at // size, len(table.path)):
                gone.append(page)
                table.pages[at] = NO_PAGE
        self.pool.release(gone)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(table.pages)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def doubt(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.pool.forget(table.pages)
        self.pool.forget_names(chain(table.path))
        for name in chain(table.path):
            assert not self.pool.match_whole([name]).keys and not self.pool.match([name]).keys

    @invariant()
    def i3_pages_are_conserved_over_all_groups(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        held = {page for table in self.tables for page in table.pages if page != NO_PAGE}
        assert pool.held_pages == len(held)
        assert pool.free_pages + pool.held_pages + pool.cached_pages == TOTAL

    @invariant()
    def i5_events_tell_which_blocks_have_been_whole(self) -> None:
        """Of one that was never told of, only doubts are."""
        if not hasattr(self, "pool"):
            return
        told: list[bytes] = []
        for event in self.events:
            if isinstance(event, BlockStored):
                assert event.key not in told
                told.append(event.key)
            elif isinstance(event, BlockRemoved):
                assert event.key in told or event.doubtful
                told = [one for one in told if one != event.key]
        assert told == list(self.pool.named())
        for name in {name for table in self.tables for name in chain(table.path)}:
            assert name in told or not self.pool.match_whole([name]).keys

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for table in self.tables:
            self.pool.release(table.pages)
        assert self.pool.held_pages == 0
        taken = self.pool.reserve(TOTAL)
        assert isinstance(taken, Reservation) and sorted(taken.pages) == list(range(TOTAL))


WindowedMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None
)
TestWindowedPool = WindowedMachine.TestCase


def test_a_prefix_is_found_as_long_as_its_windows_last_pages_are_there() -> None:
    """A shorter match is for one group of layers, and the shortest counts."""
    groups = PageGroups(
        [KvGroup(), KvGroup(window=5)], page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS
    )
    pool = WindowedPagePool(24, groups)
    names = chain((0, 1, 2, 3))
    taken = pool.reserve(16)
    assert isinstance(taken, Reservation)
    blocks = [list(taken.pages[at : at + 4]) for at in range(0, 16, 4)]
    for number, block in enumerate(blocks):
        pool.commit(names[number], names[number - 1] if number else None, block)
    for block in blocks[:3]:
        pool.release(block[1::2])
    pool.release(blocks[0][0::2])
    assert pool.match(names).pages == (
        *(blocks[0][0], NO_PAGE, blocks[0][2], NO_PAGE),
        *(blocks[1][0], NO_PAGE, blocks[1][2], NO_PAGE),
        *(blocks[2][0], NO_PAGE, blocks[2][2], NO_PAGE),
        *blocks[3],
    )
    assert pool.match(names[:3]).keys == tuple(names[:3]), "its window's pages are cached"
    assert isinstance(pool.reserve(8 + 2 + 2), Reservation), "the first windows' pages are evicted"
    assert pool.match(names[:2]).keys == ()
    assert pool.match(names[:3]).keys == tuple(names[:3])
    assert pool.match_whole(names).keys == ()


def test_a_block_is_told_of_when_the_last_of_it_is_here() -> None:
    """Who puts blocks into a store hears of one that came without its windows when it is whole, and
    where each part of it lies."""
    groups = PageGroups(
        [KvGroup(), KvGroup(window=5)], page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS
    )
    events: list[KvEvent] = []
    pool = WindowedPagePool(8, groups, listen=events.append)
    taken = pool.reserve(6)
    assert isinstance(taken, Reservation)
    a, b, *whole = taken.pages
    assert not pool.commit(b"x", None, [a, NO_PAGE, b, NO_PAGE])
    assert events == [] and pool.named() == () and pool.block(b"x") is None
    assert pool.commit(b"x", None, whole, [1, 2, 3, 4], b"t")
    there = (a, whole[1], b, whole[3])
    assert events == [BlockStored(b"x", None, there, (1, 2, 3, 4), b"t")]
    assert not pool.commit(b"x", None, whole), "nor is it told of twice"
    assert pool.named() == (b"x",)
    pool.release([a, b])
    assert isinstance(pool.reserve(4), Reservation), "its first group is evicted"
    assert events[1:] == [BlockRemoved(b"x")] and pool.named() == ()


def test_of_a_block_that_came_in_part_doubts_are_told_alone() -> None:
    """A copy elsewhere is as doubtful, whoever made it."""
    groups = PageGroups(
        [KvGroup(), KvGroup(window=5)], page_tokens=PAGE_TOKENS, block_tokens=BLOCK_TOKENS
    )
    for doubt in (False, True):
        events: list[KvEvent] = []
        pool = WindowedPagePool(4, groups, listen=events.append)
        taken = pool.reserve(2)
        assert isinstance(taken, Reservation)
        a, b = taken.pages
        pool.commit(b"x", None, [a, NO_PAGE, b, NO_PAGE])
        if doubt:
            pool.forget([a])
        pool.release([a, b])
        assert isinstance(pool.reserve(4), Reservation)
        assert events == ([BlockRemoved(b"x", doubtful=True)] if doubt else [])
