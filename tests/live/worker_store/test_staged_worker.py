"""A worker whose KV lies on a device, and others who know nothing of that.

With 16-bit weights torch computes, on the processor too, in pages of its own: what others get is
copied out of these, what they bring is copied in.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from fetched_prompt import BLOCKS, KNOWN, PROMPT
from link_kit import until
from scripted_store import ScriptedStore
from store_worker import BLOCK, loaded, request, said_alone, store_worker, tiny_model

from antiphon.engine.device import Current, DeviceKv
from antiphon.live.loaded_engine import LoadedEngine
from antiphon.live.staged_region import StagedRegion
from antiphon.store.transfer import MappedRegion
from antiphon.types import (
    Chunk,
    LeaseHeld,
    Offer,
    PageCopy,
    PagePull,
    Pulled,
    Stage,
    StepPlan,
    StepResult,
    TokenGenerated,
)

pytestmark = pytest.mark.timeout(120)
NUMBERS = count()
TOKENS = tuple(range(1, 41))
"""Two pages of 16 tokens and a half."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def bf16(folder: Path) -> dict[str, dict[str, str]]:
    return {"model": {"name": str(folder / "tiny"), "dtype": "bf16"}}


def on_device(folder: Path) -> tuple[LoadedEngine, StagedRegion, DeviceKv]:
    one = loaded(folder, **bf16(folder))
    assert isinstance(one.region, StagedRegion)
    assert one.region._memory is not None
    return one, one.region, one.region._memory


def forward(model: LoadedEngine, *chunks: Chunk, copies: tuple[PageCopy, ...] = ()) -> StepResult:
    return model.engine.forward(StepPlan(number=next(NUMBERS), chunks=chunks, copies=copies))


def whole_prompt(name: str, pages: tuple[int, ...]) -> Chunk:
    asked = request(name, TOKENS)
    return Chunk(
        request=asked, sequence=0, tokens=TOKENS, start=0, new_pages=pages, samples=(0,), index=0
    )


def pages_of(region: StagedRegion) -> np.ndarray:
    return region.content.reshape(region.shape.pages, -1)


def on(memory: DeviceKv, page: int) -> np.ndarray:
    return memory.tensor[page].cpu().contiguous().view(-1).view(memory.flat.dtype).float().numpy()


def test_device_pages_are_not_the_shared_ones_and_whole_ones_are_copied(model: Path) -> None:
    one, region, memory = on_device(model)
    assert memory.flat.data_ptr() != region.content.ctypes.data
    forward(one, whole_prompt("a", (2, 5, 3)))
    assert [memory.current(page) for page in (2, 5, 3)] == [Current.BOTH] * 2 + [Current.DEVICE]
    assert pages_of(region)[2].any() and not pages_of(region)[3].any()
    assert region.generations[[2, 5, 3]].tolist() == [1, 1, 1]
    offers = region.seal([2, 5, 3])
    assert [offer.generation for offer in offers] == [2, 2, 2]
    assert all(region.intact(offer) for offer in offers)
    assert pages_of(region)[3].any()
    forward(one, whole_prompt("c", (5, 3, 2)))
    assert region.generations[[2, 5, 3]].tolist() == [3, 3, 3]
    assert one.layers == 1, "pages come to a device whole"


def test_pulled_kv_goes_on_like_computed_kv(model: Path) -> None:
    (prefill, theirs, _), (decode, ours, memory) = on_device(model), on_device(model)
    (first,) = forward(prefill, whole_prompt("r", (2, 5, 3))).samples
    offers = theirs.seal([2, 5, 3])
    mapped = MappedRegion(theirs.fd, ours)
    pulled = mapped.pull([PagePull(o, t) for o, t in zip(offers, (9, 1, 4), strict=True)])
    mapped.close()
    assert pulled == (True,) * 3
    assert [memory.current(page) for page in (9, 1, 4)] == [Current.HOST] * 3
    resumed = replace(request("r", TOKENS), resumed=((first.token,),))
    following = []
    for side, asked, rest in (
        (prefill, request("r", TOKENS), {"page_start": 3}),
        (decode, resumed, {"new_pages": (9, 1, 4)}),
    ):
        step = Chunk(
            request=asked,
            sequence=0,
            tokens=(first.token,),
            start=40,
            samples=(0,),
            index=1,
            **rest,
        )
        following.append(forward(side, step).samples)
    assert following[0] == following[1]
    tails = theirs.seal([3]), ours.seal([4])
    assert tails[0][0].checksum == tails[1][0].checksum, "the new position's key and value, too"


def test_a_fork_of_a_pulled_tail_has_what_was_pulled(model: Path) -> None:
    (prefill, theirs, _), (decode, ours, memory) = on_device(model), on_device(model)
    forward(prefill, whole_prompt("r", (2, 5, 3)))
    (tail,) = theirs.seal([3])
    mapped = MappedRegion(theirs.fd, ours)
    assert mapped.pull([PagePull(tail, 4)]) == (True,)
    mapped.close()
    forward(decode, copies=(PageCopy(4, 6),))
    (copied,) = ours.seal([6])
    assert copied.checksum == tail.checksum
    assert np.array_equal(on(memory, 4), on(memory, 6))


# ── beside a store, and another worker ──────────────────────────────────────────────────────────


@pytest.fixture
async def folder(model: Path) -> AsyncIterator[Path]:
    model.chmod(0o700)
    yield model
    assert not list(model.glob("*.sock"))


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[ScriptedStore]:
    region = loaded(folder, **bf16(folder)).region
    assert region is not None
    async with ScriptedStore(folder, region.shape) as one:
        yield one


@pytest.fixture(scope="module")
def expected(model: Path) -> tuple[int, ...]:
    return asyncio.run(said_alone(model, request("r", PROMPT), **bf16(model)))


async def test_what_one_device_has_computed_another_takes_from_the_store(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    async with store_worker(folder, "earlier", sections=bf16(folder)) as side:
        await until(lambda: side.connected)
        assert await side.ask(request("e", PROMPT)) == (expected,)
        await until(lambda: len(store.kept) == BLOCKS)
        await side.rest()
    async with store_worker(folder, sections=bf16(folder)) as side:
        await until(lambda: side.connected)
        asked = request("r", PROMPT)
        assert await side.ask(asked, fetch=KNOWN) == (expected,)
        assert side.fetched(asked).fetched_tokens == KNOWN
        assert side.worker.view().computed_tokens_total < BLOCK
        await side.rest()


async def test_a_prompt_computed_on_one_device_goes_on_on_another(
    folder: Path, store: ScriptedStore, expected: tuple[int, ...]
) -> None:
    async with (
        store_worker(folder, "p0", sections=bf16(folder)) as prefill,
        store_worker(folder, "d0", sections=bf16(folder)) as decode,
    ):
        await until(lambda: prefill.connected and decode.connected)
        asked = request("r", PROMPT)
        await prefill.worker.add(asked, Stage.PREFILL)
        await prefill.until(lambda: bool(prefill.of(asked, Offer)))
        (offer,), (first,) = prefill.of(asked, Offer), prefill.of(asked, TokenGenerated)
        granted = await prefill.worker.grant(offer.lease, decode.info.incarnation, 1)
        assert granted == LeaseHeld(offer.lease)
        await decode.worker.adopt(replace(asked, resumed=((first.token,),)), offer)
        assert await decode.answer(asked) == (expected[1:],)
        (pulled,) = decode.of(asked, Pulled)
        assert (pulled.pulled_tokens, pulled.missing_tokens) == (len(PROMPT), 0)
        await prefill.rest()
        await decode.rest()
