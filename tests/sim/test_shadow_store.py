"""The store of the simulator keeps what was put, and a copy of anything else is found."""

import pytest

from antiphon.errors import BugError
from antiphon.sim import ShadowKv, ShadowStore, StoreSide
from antiphon.types import (
    BlockKey,
    BlockRemoved,
    BlockStored,
    Chunk,
    Fetch,
    Request,
    RequestId,
    SamplingParams,
    StepPlan,
)

KEY = BlockKey(b"key")


def run(memory: ShadowKv, name: str, prompt: tuple[int, ...], pages: tuple[int, ...], start=0):
    request = Request(id=RequestId(name), prompt=prompt, sampling=SamplingParams())
    chunk = Chunk(request=request, sequence=0, tokens=prompt[start:], start=start, new_pages=pages)
    memory.run(StepPlan(number=0, chunks=(chunk,)))


def owner(store: ShadowStore) -> tuple[ShadowKv, StoreSide]:
    """Pages of 2; a block of four tokens lies in pages 5 and 3, and has its name."""
    memory = ShadowKv(2)
    side = StoreSide(store, memory)
    run(memory, "a", (1, 2, 3, 4), (5, 3))
    side.listen(BlockStored(KEY, None, pages=(5, 3)))
    return memory, side


def fetch(*targets: tuple[int, ...]) -> Fetch:
    return Fetch(request=RequestId("b"), attempt=1, keys=(KEY,) * len(targets), targets=targets)


def test_a_block_that_was_put_can_be_read_by_another_worker() -> None:
    store = ShadowStore()
    _, side = owner(store)
    (block,) = side.seal_fresh()
    assert side.put(block) and len(store) == 1 and side.seal_fresh() == []
    memory = ShadowKv(2)
    assert StoreSide(store, memory).copy(fetch((7, 8))) == (True,)
    run(memory, "b", (1, 2, 3, 4, 9), (7, 8, 0), start=4)


def test_a_page_that_was_used_anew_before_it_was_copied_is_not_put() -> None:
    """A write-back without a lease: what the page holds by then is somebody else's."""
    store = ShadowStore()
    memory, side = owner(store)
    (block,) = side.seal_fresh()
    run(memory, "other", (9, 9), (3,))
    assert not side.put(block) and len(store) == 0


def test_a_block_that_lost_its_name_at_once_is_not_put() -> None:
    store = ShadowStore()
    _, side = owner(store)
    side.listen(BlockRemoved(KEY, doubtful=True))
    assert side.seal_fresh() == []


@pytest.mark.parametrize("put_before", [True, False])
def test_a_block_that_a_failed_step_wrote_cannot_be_had(put_before: bool) -> None:
    """Its pages are what they were, so that nothing but this tells."""
    store = ShadowStore()
    memory, side = owner(store)
    (block,) = side.seal_fresh()
    if put_before:
        assert side.put(block)
    side.listen(BlockRemoved(KEY, doubtful=True))
    assert not side.put(block)
    assert len(store) == 0
    assert StoreSide(store, ShadowKv(2)).copy(fetch((7, 8))) == (False,)
    side.listen(BlockStored(KEY, None, pages=(5, 3)))  # computed once more
    assert side.put(*side.seal_fresh())
    assert store.get(KEY) == (memory.content(5), memory.content(3))


def test_a_block_that_only_had_to_make_room_stays_in_the_store() -> None:
    store = ShadowStore()
    _, side = owner(store)
    assert side.put(*side.seal_fresh())
    side.listen(BlockRemoved(KEY))
    assert len(store) == 1


@pytest.mark.parametrize("lost", [(0,), ()], ids=["lost", "never put"])
def test_a_block_that_can_not_be_had_leaves_garbage(lost: tuple[int, ...]) -> None:
    store, memory = ShadowStore(), ShadowKv(2)
    if lost:
        _, side = owner(store)
        side.put(*side.seal_fresh())
    assert StoreSide(store, memory, lost=lambda _: lost).copy(fetch((7, 8))) == (False,)
    with pytest.raises(BugError, match="I5"):
        run(memory, "b", (1, 2, 3, 4, 9), (7, 8, 0), start=4)


def test_a_stale_block_that_is_taken_for_good_is_found() -> None:
    """LMCache 4385: the store gave another prompt's KV under this one's name."""
    store = ShadowStore()
    _, side = owner(store)
    side.put(*side.seal_fresh())
    memory = ShadowKv(2)
    assert StoreSide(store, memory).copy(fetch((7, 8))) == (True,)
    with pytest.raises(BugError, match="I5: b/0 reads page 7"):
        run(memory, "b", (4, 3, 2, 1, 9), (7, 8, 0), start=4)
