"""A model on a shared region: what the engine writes is announced, what is pulled is as good."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from antiphon.core.config import build
from antiphon.errors import UsageError
from antiphon.live.loaded_model import LoadedModel, load_model
from antiphon.store.transfer import MappedRegion, OwnedRegion
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.types import (
    Chunk,
    PageCopy,
    PagePull,
    Request,
    RequestId,
    SamplingParams,
    StepPlan,
    StepResult,
)

PROMPT = tuple(range(1, 41))
"""Two pages of 16 tokens and a half."""
NUMBERS = count()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_hf_folder(tmp_path / "tiny", TINY_SPEC, random_tensors(TINY_SPEC, seed=1))
    return tmp_path


def loaded(folder: Path, *, memory: str = "1MiB", shares_kv: bool = True) -> LoadedModel:
    values = {
        "model": {"name": str(folder / "tiny")},
        "kv": {"memory_bytes": memory},
        "engine": {"cache_dir": str(folder / "cache")},
    }
    return load_model(build(values), lambda line: None, shares_kv=shares_kv)


def region_of(model: LoadedModel) -> OwnedRegion:
    assert model.region is not None
    return model.region


def request(name: str) -> Request:
    sampling = SamplingParams(max_tokens=8, temperature=0.0, seed=0)
    return Request(id=RequestId(name), prompt=PROMPT, sampling=sampling)


def forward(model: LoadedModel, *chunks: Chunk, copies: tuple[PageCopy, ...] = ()) -> StepResult:
    """One step. Law: whatever pages it changes are odd after it."""
    region = region_of(model)
    pages = region.content.reshape(region.shape.pages, -1)
    before = pages.copy()
    result = model.engine.forward(StepPlan(number=next(NUMBERS), chunks=chunks, copies=copies))
    changed = np.flatnonzero((pages != before).any(axis=1))
    assert len(changed)
    assert (region.generations[changed] % 2 == 1).all()
    return result


def whole_prompt(name: str, pages: tuple[int, ...]) -> Chunk:
    return Chunk(
        request=request(name), sequence=0, tokens=PROMPT, start=0, new_pages=pages, samples=(0,),
        index=0,
    )  # fmt: skip


def test_pages_are_odd_while_a_sequence_writes_them_and_no_others(folder: Path) -> None:
    model = loaded(folder)
    region = region_of(model)
    assert region.generations.tolist() == [1] + [0] * (region.shape.pages - 1)  # the warm-up's
    (sample,) = forward(model, whole_prompt("a", (2, 5, 3))).samples
    assert np.flatnonzero(region.generations).tolist() == [0, 2, 3, 5]
    assert [offer.generation for offer in region.seal([2, 5, 3])] == [2, 2, 2]

    shared = Chunk(  # finds the first two pages in the cache and computes the rest in its own
        request=request("b"), sequence=0, tokens=PROMPT[32:], start=32, new_pages=(2, 5, 7)
    )
    forward(model, shared)
    assert region.generations[[2, 5, 3, 7]].tolist() == [2, 2, 2, 1]

    tail = Chunk(
        request=request("a"), sequence=0, tokens=(sample.token,), start=40, page_start=2,
        new_pages=(6,),
    )  # fmt: skip
    forward(model, tail, copies=(PageCopy(3, 6),))
    assert region.generations[[2, 5, 3, 6]].tolist() == [2, 2, 2, 1]

    forward(model, whole_prompt("c", (5, 3, 2)))  # the pages are another's now
    assert region.generations[[2, 5, 3]].tolist() == [3, 3, 3]


def test_pulled_kv_goes_on_like_computed_kv(folder: Path) -> None:
    prefill, decode = loaded(folder), loaded(folder)
    (first,) = forward(prefill, whole_prompt("r", (2, 5, 3))).samples
    offers = region_of(prefill).seal([2, 5, 3])
    mapped = MappedRegion(region_of(prefill).fd, region_of(decode))
    pulled = mapped.pull([PagePull(o, t) for o, t in zip(offers, (9, 1, 4), strict=True)])
    assert pulled == (True,) * 3
    mapped.close()

    resumed = replace(request("r"), resumed=((first.token,),))
    following = []
    for model, asked, chunk in (
        (prefill, request("r"), {"page_start": 3}),
        (decode, resumed, {"new_pages": (9, 1, 4)}),
    ):
        step = Chunk(
            request=asked, sequence=0, tokens=(first.token,), start=40, samples=(0,), index=1,
            **chunk,
        )  # fmt: skip
        following.append(forward(model, step).samples)
    assert following[0] == following[1]
    own = [
        region_of(model).content.reshape(region_of(model).shape.pages, -1)[page]
        for model, page in ((prefill, 3), (decode, 4))
    ]
    assert np.array_equal(*own)  # the key and value of the new position, too


def test_as_many_whole_pages_as_fit(folder: Path) -> None:
    model = loaded(folder)
    shape = region_of(model).shape
    assert shape.pages == 2**20 // shape.page_bytes == model.scheduler.view(0.0).total_pages


def test_alone_a_worker_shares_nothing(folder: Path) -> None:
    assert loaded(folder, shares_kv=False).region is None


def test_too_little_memory_is_refused_before_any_is_taken(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"kv\.memory_bytes"):
        loaded(folder, memory="60TiB")
