"""What a region is to the system: nameless, sealed, gone with its last user. Its header."""

import fcntl
import gc
import mmap
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from region_kit import SHAPE, descriptors, maps, region

from antiphon.errors import PeerError, UsageError
from antiphon.store.transfer import MappedRegion
from antiphon.store.transfer import region as region_module
from antiphon.store.transfer.region_header import HEADER_BYTES, RegionHeader

HEADER = RegionHeader.of(SHAPE)


def test_nobody_can_change_its_size_or_its_seals() -> None:
    owner = region()
    for size in (0, owner.header.region_bytes - 1, owner.header.region_bytes + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(owner.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(owner.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert not os.get_inheritable(owner.fd)


@pytest.mark.parametrize("seal", [region_module._F_SEAL_FUTURE_WRITE, 1 << 20])
def test_a_peer_reads_and_cannot_write_while_the_owner_still_does(monkeypatch, seal: int) -> None:
    """Also where the system does not know the seal."""
    monkeypatch.setattr(region_module, "_F_SEAL_FUTURE_WRITE", seal)
    before = descriptors()
    owner = region()
    size = owner.header.region_bytes
    program = (
        "import mmap, os, sys\n"
        "fd, size, at = map(int, sys.argv[1:])\n"
        "try: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[at] = 1\n"
        "except PermissionError: print('not mapped')\n"
        "try: os.pwrite(fd, b'x', at)\n"
        "except OSError: print('not written')\n"
        "print(mmap.mmap(fd, size, prot=mmap.PROT_READ)[at])\n"
    )
    owner.content[0] = 9
    child = subprocess.run(
        [sys.executable, "-c", program, *map(str, (owner.fd, size, owner.header.pages_at))],
        pass_fds=[owner.fd],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert child.stdout.split("\n") == ["not mapped", "not written", "9", ""]
    owner.content[0] = 10
    assert os.pread(owner.fd, 1, owner.header.pages_at) == b"\x0a"
    owner.close()
    assert descriptors() <= before + 1, "the mapping keeps a descriptor of its own, no more"


def test_pages_are_zero_and_lie_where_the_header_says() -> None:
    owner = region(pages=3)
    assert not owner.content.any()
    assert not owner.generations.any()
    owner.content[1024] = 9
    assert os.pread(owner.fd, 1, owner.header.pages_at + 1024) == b"\x09"
    assert owner.header.pages_at % (2 << 20) == 0
    assert owner.content.ctypes.data % 64 == 0


def test_its_memory_is_there_from_the_start() -> None:
    owner = region(page_bytes=1 << 20)
    assert os.fstat(owner.fd).st_blocks * 512 >= owner.header.region_bytes


def test_nothing_stays_of_a_region_that_is_given_up() -> None:
    gc.collect()
    before = descriptors(), maps()
    for _ in range(20):
        owner, own = region(), region()
        mapped = MappedRegion(owner.fd, own)
        mapped.close()
        mapped.close()
        owner.close()
        owner.close()
        del owner, own, mapped
    gc.collect()
    assert (descriptors(), maps()) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": 0}, r"kv\.memory_bytes"),
        ({"page_bytes": 192}, r"kv\.page_tokens"),
        ({"page_bytes": 1000}, "multiples of 64"),
        ({"layout": "x" * 257}, "longer than 256"),
        ({"page_bytes": 1 << 32, "pages": 1 << 30}, r"lower kv\.memory_bytes"),
    ],
)
def test_a_shape_that_cannot_be_shared_is_refused(changes: dict[str, object], message: str) -> None:
    before = descriptors(), maps()
    with pytest.raises(UsageError, match=message):
        region(**changes)
    assert (descriptors(), maps()) == before


def test_memory_that_the_system_does_not_give_is_an_error_of_the_start() -> None:
    """A file-size limit stands in for missing memory: growing the file fails."""
    script = (
        "import resource, sys; sys.path[:0] = ['src', 'tests/store']\n"
        "from region_kit import region\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "region(page_bytes=1 << 20)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "UsageError" in ended.stderr
    assert "kv.memory_bytes" in ended.stderr


# ── the header ───────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(1, 10**6),
    st.integers(4, 10**6).map(lambda stripes: 64 * stripes),
    st.text(max_size=64),
)
def test_a_header_comes_back(pages: int, page_bytes: int, layout: str) -> None:
    layout = layout.encode(errors="replace").decode()
    header = RegionHeader.of(replace(SHAPE, pages=pages, page_bytes=page_bytes, layout=layout))
    data = header.encoded()
    assert len(data) == HEADER_BYTES
    assert RegionHeader.decoded(data, header.region_bytes) == header


@settings(max_examples=500)
@given(st.data())
def test_a_hostile_header_is_refused_or_lies_within_the_file(data: st.DataObject) -> None:
    encoded = bytearray(HEADER.encoded())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, 56))
        encoded[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    raw = bytes(encoded[: data.draw(st.integers(0, HEADER_BYTES))])
    file_bytes = data.draw(st.sampled_from([HEADER.region_bytes, 0, 1 << 40, 1 << 63]))
    try:
        header = RegionHeader.decoded(raw, file_bytes)
    except PeerError:
        return
    assert header.generations_at >= HEADER_BYTES
    assert header.generations_at + 8 * header.pages <= header.pages_at
    assert header.pages_at + header.pages * header.page_bytes <= file_bytes
    assert header.page_bytes % 64 == header.pages_at % 64 == header.generations_at % 8 == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pages": 0}, "0 pages"),
        ({"pages": 9}, "are described"),
        ({"page_bytes": 100}, "pages of 100"),
        ({"page_bytes": 0}, "pages of 0"),
        ({"generations_at": 8}, "generations at byte 8"),
        ({"generations_at": 65537}, "generations at byte 65537"),
        ({"pages_at": 100}, "pages at byte 100"),
        ({"pages_at": 65536}, "overlap"),
    ],
)
def test_a_header_that_contradicts_itself(changes: dict[str, int], message: str) -> None:
    with pytest.raises(PeerError, match=message):
        RegionHeader.decoded(replace(HEADER, **changes).encoded(), HEADER.region_bytes)


def test_a_foreign_file_and_a_later_version() -> None:
    data = bytearray(HEADER.encoded())
    with pytest.raises(PeerError, match="no header"):
        RegionHeader.decoded(b"", 0)
    data[8] = 2
    with pytest.raises(PeerError, match="version 2"):
        RegionHeader.decoded(bytes(data), HEADER.region_bytes)
    data[0] ^= 1
    with pytest.raises(PeerError, match="no KV region"):
        RegionHeader.decoded(bytes(data), HEADER.region_bytes)


def test_a_mapping_can_only_be_read() -> None:
    """Another process's pages are protected by the system, not by our care."""
    owner = region()
    readable = mmap.mmap(owner.fd, owner.header.region_bytes, prot=mmap.PROT_READ)
    with pytest.raises(TypeError):
        readable[0] = 1
    readable.close()
