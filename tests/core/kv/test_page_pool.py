"""Laws of the page pool: I3 pages are conserved, I5 what is found by key is what was named."""

from collections import OrderedDict

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from antiphon.core.kv import Match, OutOfMemory, PagePool, Reservation
from antiphon.errors import BugError
from antiphon.types import BlockRemoved, BlockStored, KvEvent

SETTINGS = settings(max_examples=150, stateful_step_count=40, deadline=None)


def key(*path: int) -> bytes:
    return repr(path).encode()


class PoolMachine(RuleBasedStateMachine):
    """Against a model that knows holders and names, and finds its answers by searching."""

    pool_class = PagePool
    pages_per_block = 2
    total = 12

    def __init__(self) -> None:
        super().__init__()
        self.events: list[KvEvent] = []
        self.pool = self.pool_class(self.total, self.pages_per_block, listen=self.events.append)
        self.holders: list[tuple[list[int], list[bytes], tuple[int, ...]]] = []
        """Each: its pages, the keys of the blocks it knows, the path of its content."""
        self.named: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()
        self.idle: list[bytes] = []
        """Named and unreferenced, next to be evicted first."""
        self.forgotten = 0
        """Blocks whose content was doubted."""

    def chain(self, path: tuple[int, ...]) -> list[bytes]:
        return [key(*path[: depth + 1]) for depth in range(len(path))]

    def references(self, page: int) -> int:
        return sum(pages.count(page) for pages, _, _ in self.holders)

    def free(self) -> int:
        cached = sum(len(self.named[one]) for one in self.idle)
        held = sum(1 for page in range(self.total) if self.references(page))
        return self.total - cached - held

    @rule(path=st.lists(st.integers(0, 1), max_size=4).map(tuple), extra=st.integers(0, 5))
    def reserve(self, path: tuple[int, ...], extra: int) -> None:
        match = self.pool.match(self.chain(path))
        expected: list[bytes] = []
        for one in self.chain(path):
            if one not in self.named:
                break
            expected.append(one)
        assert list(match.keys) == expected
        assert list(match.pages) == [page for one in expected for page in self.named[one]]
        kept_idle = [one for one in self.idle if one in expected]
        evictable = [one for one in self.idle if one not in expected]
        available = self.free() + self.pages_per_block * len(evictable)
        before = self.counts()
        answer = self.pool.reserve(extra, keep=match)
        if extra > available:
            assert answer == OutOfMemory(needed=extra, available=available)
            assert self.counts() == before
            assert self.pool.match(self.chain(path)) == match
            return
        assert isinstance(answer, Reservation)
        free = self.free()
        while free < extra:
            victim = evictable.pop(0)
            free += len(self.named.pop(victim))
            self.idle.remove(victim)
        for one in kept_idle:
            self.idle.remove(one)
        assert len(set(answer.pages)) == extra
        assert all(self.references(page) == 0 for page in answer.pages)
        assert all(page not in pages for page in answer.pages for pages in self.named.values())
        path = path[: len(expected)]
        self.holders.append(([*match.pages, *answer.pages], expected, path))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), step=st.integers(0, 1))
    def commit(self, data: st.DataObject, step: int) -> None:
        index = data.draw(st.integers(0, len(self.holders) - 1))
        pages, keys, path = self.holders[index]
        first = len(keys) * self.pages_per_block
        block = tuple(pages[first : first + self.pages_per_block])
        if len(block) < self.pages_per_block:
            return
        path = (*path, step)
        name = key(*path)
        stored = self.pool.commit(name, keys[-1] if keys else None, block, tenant=bytes(path[:1]))
        assert stored == (name not in self.named)
        if stored:
            self.named[name] = block
        self.holders[index] = (pages, [*keys, name], path)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        """A fork: the complete blocks are shared."""
        pages, keys, path = data.draw(st.sampled_from(self.holders))
        shared = pages[: len(keys) * self.pages_per_block]
        self.pool.share(shared)
        self.holders.append((list(shared), list(keys), path))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages, _, _ = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.pool.release(pages)
        for page in reversed(pages):
            for one, block in self.named.items():
                unreferenced = not any(self.references(each) for each in block)
                if page in block and unreferenced and one not in self.idle:
                    self.idle.append(one)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        pages, _, _ = data.draw(st.sampled_from(self.holders))
        self.pool.forget(pages)
        for one, block in list(self.named.items()):
            if set(block) & set(pages):
                del self.named[one]
                self.forgotten += 1

    def counts(self) -> tuple[int, int, int]:
        return self.pool.free_pages, self.pool.held_pages, self.pool.cached_pages

    @invariant()
    def i3_pages_are_conserved(self) -> None:
        held = sum(1 for page in range(self.total) if self.references(page))
        cached = sum(len(self.named[one]) for one in self.idle)
        assert self.counts() == (self.free(), held, cached)
        assert sum(self.counts()) == self.pool.total_pages == self.total
        assert self.pool.available_pages == self.free() + cached

    @invariant()
    def i5_events_tell_what_is_named(self) -> None:
        told: dict[bytes, tuple[int, ...]] = {}
        doubtful = 0
        for event in self.events:
            match event:
                case BlockStored(name, _, pages):
                    assert name not in told
                    told[name] = pages
                case BlockRemoved(name):
                    del told[name]
                    doubtful += event.doubtful
        assert told == self.named and doubtful == self.forgotten

    @invariant()
    def i5_a_block_is_said_again_as_it_was_told(self) -> None:
        said = {one.key: one for one in self.events if isinstance(one, BlockStored)}
        for name, event in said.items():
            assert self.pool.block(name) == (event if name in self.named else None)
        assert list(self.pool.named()) == list(self.named), "first named first"

    @invariant()
    def i5_what_is_found_is_what_was_named(self) -> None:
        for name, block in self.named.items():
            assert self.pool.match([name]).pages == block

    def teardown(self) -> None:
        """I4: when all is given back, nothing is held."""
        for pages, _, _ in self.holders:
            self.pool.release(pages)
        assert self.pool.held_pages == 0
        taken = self.pool.reserve(self.total)
        assert isinstance(taken, Reservation) and sorted(taken.pages) == list(range(self.total))


class OnePageBlocks(PoolMachine):
    pages_per_block = 1
    total = 7


PoolMachine.TestCase.settings = SETTINGS
OnePageBlocks.TestCase.settings = SETTINGS
TestPool = PoolMachine.TestCase
TestPoolOfOnePageBlocks = OnePageBlocks.TestCase


# ── negative controls: the machine finds what a faulty pool does ──────────────────────────────


class Forgetful(PagePool):
    """Keeps the first page of whatever is given back."""

    def release(self, pages) -> None:
        super().release(pages[1:])


class HeadFirst(PagePool):
    """Lets heads be evicted before their tails."""

    def release(self, pages) -> None:
        super().release(pages[::-1])


class Touchy(PagePool):
    """A look-up changes the order of eviction."""

    def match(self, keys) -> Match:
        found = super().match(keys)
        for name in found.keys:
            block = self._named[name]
            if block in self._idle:
                self._idle.move_to_end(block)
        return found


class Hasty(PagePool):
    """Evicts before it knows that there will be enough."""

    def reserve(self, pages, keep=None):
        if pages > self.available_pages and self._idle:
            self._evict()
        return super().reserve(pages, keep)


@pytest.mark.parametrize("mutant", [Forgetful, HeadFirst, Touchy, Hasty])
@pytest.mark.no_cover
def test_the_laws_find_a_faulty_pool(mutant: type[PagePool]) -> None:
    machine = type("Faulty", (PoolMachine,), {"pool_class": mutant})
    search = settings(
        SETTINGS,
        max_examples=1000,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, BugError, KeyError)):
        run_state_machine_as_test(machine, settings=search)


# ── examples ──────────────────────────────────────────────────────────────────────────────────


def stored(pool: PagePool, *names: bytes) -> list[int]:
    """Take pages for a chain of named blocks."""
    taken = pool.reserve(len(names) * pool.pages_per_block)
    assert isinstance(taken, Reservation)
    for number, name in enumerate(names):
        first = number * pool.pages_per_block
        assert pool.commit(name, None, taken.pages[first : first + pool.pages_per_block])
    return list(taken.pages)


def test_tails_are_evicted_before_heads() -> None:
    pool = PagePool(4, 1)
    pool.release(stored(pool, b"head", b"middle", b"tail"))
    pool.reserve(2)
    assert pool.match([b"head", b"middle", b"tail"]).keys == (b"head", b"middle")


def test_the_least_recently_used_block_goes_first() -> None:
    pool = PagePool(2, 1)
    pool.release(stored(pool, b"a"))
    pool.release(stored(pool, b"b"))
    again = pool.match([b"a"])
    pool.reserve(0, keep=again)
    pool.release(again.pages)
    pool.reserve(1)
    assert pool.match([b"a"]).keys and not pool.match([b"b"]).keys


def test_a_match_is_not_evicted_for_the_pages_beside_it() -> None:
    pool = PagePool(2, 1)
    pool.release(stored(pool, b"a", b"b"))
    match = pool.match([b"a"])
    assert pool.reserve(2, keep=match) == OutOfMemory(needed=2, available=1)
    assert isinstance(pool.reserve(1, keep=match), Reservation)
    assert pool.match([b"a"]).pages == match.pages


def test_without_prefix_cache_nothing_is_named() -> None:
    pool = PagePool(2, 1, prefix_cache=False)
    taken = pool.reserve(1)
    assert isinstance(taken, Reservation) and not pool.commit(b"a", None, taken.pages)
    pool.release(taken.pages)
    assert (pool.free_pages, pool.cached_pages) == (2, 0)


def test_an_idle_block_that_is_forgotten_is_free() -> None:
    pool = PagePool(4, 2)
    pages = stored(pool, b"a")
    pool.release(pages)
    pool.forget(pages)
    assert (pool.free_pages, pool.cached_pages) == (4, 0)


def test_shared_pages_counts_the_common_beginning() -> None:
    pool = PagePool(8, 2)
    pages = stored(pool, b"a", b"b", b"c")
    assert pool.shared_pages(pages) == 0
    pool.share(pages[:2])
    assert pool.shared_pages(pages) == 2
    assert pool.shared_pages(pages, besides=frozenset(pages[2:3])) == 4
    assert pool.shared_pages([]) == 0
    assert pool.shared_pages(pages[:1]) == 1


def test_misuse_is_a_bug() -> None:
    pool = PagePool(4, 2)
    pages = stored(pool, b"a")
    stale = pool.match([b"a"])
    with pytest.raises(BugError, match="2 pages"):
        pool.commit(b"b", None, pages[:1])
    with pytest.raises(BugError, match="can't be named"):
        pool.commit(b"b", None, pages)
    pool.release(pages)
    with pytest.raises(BugError, match="released more often"):
        pool.release(pages)
    pool = PagePool(4, 2)
    with pytest.raises(BugError, match="nobody holds"):
        pool.share([0])
    with pytest.raises(BugError, match="pool had changed"):
        pool.reserve(1, keep=stale)
    with pytest.raises(BugError, match="makes no sense"):
        PagePool(0, 1)
