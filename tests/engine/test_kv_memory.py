"""Layout, copies and limits of the KV memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_llama import EVEN_SPEC, ODD_SPEC

from antiphon.engine.kv_memory import KvDtype, KvMemory, kv_dtype_of, layout_of
from antiphon.errors import BugError, UsageError
from antiphon.types import PageCopy


def test_bytes_of_smollm2() -> None:
    spec = replace(EVEN_SPEC, layers=30, kv_heads=3, head_dim=64)
    for kv_dtype, element_bytes in ((KvDtype.FP32, 4), (KvDtype.BF16, 2)):
        layout = layout_of(spec, 16, kv_dtype)
        assert layout.token_bytes == 30 * 2 * 3 * 64 * element_bytes
        assert layout.page_bytes == 16 * layout.token_bytes
        memory = KvMemory(layout, 5)
        assert (memory.pages, memory.elements.nbytes) == (5, 5 * layout.page_bytes)


@pytest.mark.parametrize(
    ("asked", "model", "expected"),
    [
        ("auto", "int8", KvDtype.BF16),
        ("auto", "fp32", KvDtype.FP32),
        ("fp32", "int8", KvDtype.FP32),
        ("bf16", "fp32", KvDtype.BF16),
    ],
)
def test_auto_follows_the_arithmetic(asked: str, model: str, expected: KvDtype) -> None:
    assert kv_dtype_of(asked, model) is expected


@pytest.mark.parametrize("page_tokens", [1, 16, 64])
def test_a_page_is_one_contiguous_run_over_all_layers(page_tokens: int) -> None:
    memory = KvMemory(layout_of(ODD_SPEC, page_tokens), 3)
    page = memory.tensor[1]
    assert page.is_contiguous()
    assert page.numel() == memory.layout.page_stride
    assert page.data_ptr() == memory.flat.data_ptr() + memory.layout.page_bytes


@pytest.mark.parametrize("kv_dtype", KvDtype)
def test_copies_are_whole_pages_in_order(kv_dtype: KvDtype) -> None:
    memory = KvMemory(layout_of(ODD_SPEC, 4, kv_dtype), 3)
    memory.flat.copy_(torch.arange(memory.flat.numel()))
    first = memory.tensor[0].clone()
    memory.copy((PageCopy(0, 1), PageCopy(1, 2)))
    assert torch.equal(memory.tensor, first.expand(3, *first.shape))


@pytest.mark.parametrize("copy", [PageCopy(0, 3), PageCopy(-1, 0), PageCopy(3, 0)])
def test_a_page_that_does_not_exist_is_a_bug(copy: PageCopy) -> None:
    memory = KvMemory(layout_of(ODD_SPEC, 4), 3)
    with pytest.raises(BugError, match="has 3 pages"):
        memory.copy((copy,))


@pytest.mark.parametrize("page_tokens", [0, 65, -1])
def test_page_size_out_of_range(page_tokens: int) -> None:
    with pytest.raises(UsageError, match=r"kv\.page_tokens"):
        layout_of(ODD_SPEC, page_tokens)


def test_less_than_a_page_is_refused() -> None:
    with pytest.raises(UsageError, match=r"kv\.memory_bytes"):
        KvMemory(layout_of(ODD_SPEC, 4), 0)


def test_more_than_the_machine_has_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(UsageError, match=r"lower kv\.memory_bytes"):
        KvMemory(layout_of(ODD_SPEC, 4), 2**45)


class Area:
    """Records what it is told is about to be written, and what was there then."""

    def __init__(self, size: int) -> None:
        self.content = np.zeros(size, np.uint8)
        self.told: list[list[int]] = []
        self.before: list[np.ndarray] = []

    def begin_write(self, pages: np.ndarray) -> None:
        self.told.append(pages.tolist())
        self.before.append(self.content.copy())


def test_memory_lies_in_the_area_that_is_given() -> None:
    layout = layout_of(ODD_SPEC, 4)
    area = Area(3 * layout.page_bytes + 64)
    memory = KvMemory(layout, 3, area)
    memory.tensor[2] = 1.0
    assert (
        area.content.view(np.float32)[2 * layout.page_stride :][: layout.page_stride] == 1
    ).all()
    assert not area.content[: 2 * layout.page_bytes].any()


def test_the_area_hears_of_copies_before_they_are_made() -> None:
    layout = layout_of(ODD_SPEC, 4)
    area = Area(3 * layout.page_bytes)
    memory = KvMemory(layout, 3, area)
    memory.tensor[0] = 1.0
    memory.copy(())
    memory.copy((PageCopy(0, 1), PageCopy(0, 2)))
    assert area.told == [[1, 2]]
    assert not area.before[0][layout.page_bytes :].any()
    with pytest.raises(BugError, match="has 3 pages"):
        memory.copy((PageCopy(0, 1), PageCopy(0, 3)))
    assert area.told == [[1, 2]]


def test_names_of_layouts_tell_them_apart() -> None:
    layouts = [
        layout_of(spec, page_tokens, kv_dtype)
        for spec in (EVEN_SPEC, ODD_SPEC)
        for page_tokens in (4, 16)
        for kv_dtype in KvDtype
    ]
    assert len({layout.name for layout in layouts}) == len(layouts)
