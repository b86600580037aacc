"""Pages in two places: whoever reads them has what was written last, wherever that was."""

import numpy as np
import pytest
import torch
from device_kit import DEVICES, NEEDS_CUDA
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_llama import ODD_SPEC

from antiphon.engine.device import Current, DeviceKv
from antiphon.engine.device.cuda_copies import PinnedMover
from antiphon.engine.device.device_kv import PlainMover
from antiphon.engine.kv_memory import layout_of
from antiphon.errors import BugError, UsageError
from antiphon.types import PageCopy

LAYOUT = layout_of(ODD_SPEC, 4)
PAGES = 5


class Area:
    """Memory that others write, as `StagedRegion` does: it says so before."""

    def __init__(self) -> None:
        self.content = np.zeros(PAGES * LAYOUT.page_bytes, np.uint8)
        self.pages = self.content.reshape(PAGES, -1)
        self.memory: DeviceKv | None = None

    def begin_write(self, pages: np.ndarray) -> None:
        """Everybody's writes come by here, the engine's too."""
        assert self.memory is not None
        self.memory.host_writes(pages)


class Both:
    """A device's pages, their copies, and what each holds if all goes right."""

    def __init__(self, device: str, kind: type[DeviceKv] = DeviceKv) -> None:
        self.area = Area()
        self.memory = kind(LAYOUT, PAGES, torch.device(device), self.area)
        self.area.memory = self.memory
        self.wanted = [0] * PAGES

    def engine_writes(self, page: int, value: int) -> None:
        """A part of a page: the rest of it stays."""
        self.memory.begin_write(np.array([page, page]))
        self.memory.tensor[page, 0].view(torch.uint8).fill_(value)
        self.wanted[page] = value

    def others_write(self, page: int, value: int) -> None:
        self.area.begin_write(np.array([page, 99, -1]))
        self.area.pages[page] = value
        self.wanted[page] = value

    def copy(self, source: int, target: int) -> None:
        if source != target:
            self.memory.copy((PageCopy(source, target),))
            self.wanted[target] = self.wanted[source]

    def engine_reads(self, page: int) -> int:
        self.memory.bring(np.array([page]))
        return int(self.memory.tensor[page, 0].view(torch.uint8).flatten()[7])

    def others_read(self, page: int) -> int:
        self.memory.to_host([page])
        return int(self.area.pages[page, 7])


pages = st.integers(0, PAGES - 1)
values = st.integers(1, 255)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("engine_writes"), pages, values),
        st.tuples(st.just("others_write"), pages, values),
        st.tuples(st.just("copy"), pages, pages),
        st.tuples(st.just("engine_reads"), pages),
        st.tuples(st.just("others_read"), pages),
    ),
    max_size=30,
)


def history(device: str, done: list[tuple], kind: type[DeviceKv] = DeviceKv) -> None:
    both = Both(device, kind)
    for name, page, *rest in done:
        answer = getattr(both, name)(page, *rest)
        if answer is not None:
            assert answer == both.wanted[page]
    for page in range(PAGES):
        assert both.engine_reads(page) == both.others_read(page) == both.wanted[page]
        assert both.memory.current(page) is Current.BOTH


@DEVICES
@settings(deadline=None, max_examples=150)
@given(deeds)
def test_everybody_reads_what_was_written_last(device: str, done: list[tuple]) -> None:
    history(device, done)


class NeverBrings(DeviceKv):
    def bring(self, pages: np.ndarray) -> None:
        """Forgets what others have written."""


class NeverStages(DeviceKv):
    def to_host(self, pages: object) -> None:
        """Lets others read what was there before."""


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        (NeverBrings, [("others_write", 1, 7), ("engine_reads", 1)]),
        (NeverBrings, [("others_write", 1, 7), ("copy", 1, 2), ("engine_reads", 2)]),
        (NeverStages, [("engine_writes", 1, 7), ("others_read", 1)]),
    ],
)
def test_control_a_memory_that_forgets_one_way_is_found(
    kind: type[DeviceKv], done: list[tuple]
) -> None:
    with pytest.raises(AssertionError):
        history("cpu", done, kind)


@DEVICES
def test_a_page_that_others_began_goes_on_with_what_they_wrote(device: str) -> None:
    """A tail comes from another worker, and the next token is written behind it."""
    both = Both(device)
    both.others_write(2, 9)
    both.memory.begin_write(np.array([2]))
    both.memory.tensor[2, 1].view(torch.uint8).fill_(4)
    assert both.others_read(2) == 9
    assert set(both.area.pages[2]) == {9, 4}


@DEVICES
def test_alone_it_copies_nothing(device: str) -> None:
    memory = DeviceKv(LAYOUT, PAGES, torch.device(device))
    memory.begin_write(np.array([1]))
    memory.tensor[1] = 1.0
    memory.copy((PageCopy(1, 2),))
    memory.to_host([1, 2])
    memory.bring(np.array([1, 2]))
    assert (memory.tensor[2] == 1).all()
    assert memory.tensor.shape[0] == memory.nobodys_page == PAGES
    assert [len(layer) for layer in memory.layers] == [PAGES + 1] * ODD_SPEC.layers


def test_a_page_that_does_not_exist_is_a_bug() -> None:
    memory = DeviceKv(LAYOUT, PAGES, torch.device("cpu"))
    for copy in (PageCopy(0, PAGES), PageCopy(PAGES, 0)):
        with pytest.raises(BugError, match="has 5 pages"):
            memory.copy((copy,))


def test_too_little_memory_is_refused_with_the_key_to_change() -> None:
    with pytest.raises(UsageError, match=r"engine\.device = cpu.* lower kv\.memory_bytes"):
        DeviceKv(LAYOUT, 2**46, torch.device("cpu"))


@NEEDS_CUDA
def test_pinned_copies_are_plain_copies() -> None:
    device = torch.arange(PAGES * 64, device="cuda:0").to(torch.uint8).view(PAGES, 64)
    for mover in (PlainMover, PinnedMover):
        host = torch.zeros(PAGES, 64, dtype=torch.uint8)
        moved = mover(device, host)
        moved.to_host(np.array([1, 3]))
        assert torch.equal(host[[1, 3]], device[[1, 3]].cpu())
        host[4] = 9
        moved.to_device(np.array([4]))
        assert (device[4] == 9).all()
