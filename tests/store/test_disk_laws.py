"""Any history of a disk tier, restarts and failures among it, against the simplest model."""

import errno
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from disk_kit import LIMIT_BYTES, FaultyDisk, HandClock, append, read, size_of, tier
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from record_kit import ORIGIN, block_of, checksums, key_of, pages_of, same

from antiphon.store.disk import Appended, DiskMiss, DiskTier
from antiphon.store.disk.record_files import RecordFiles
from antiphon.store.record import decode_header, new_pages
from antiphon.store.record.record_seal import RecordSeal

numbers = st.integers(0, 90)
TENANTS = (b"even", b"odd")


class DiskLaws(RuleBasedStateMachine):
    """`told`: blocks that the tier says it has. `may`: those that were whole when they were written
    last. `unmarked`: forgotten by a disk that could not write that down."""

    files: type[RecordFiles] = RecordFiles
    seal: RecordSeal | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-disk-"))
        self.calls, self.clock = FaultyDisk(), HandClock()
        self.may: set[int] = set()
        self.told: set[int] = set()
        self.unmarked: set[int] = set()
        self.disk: DiskTier

    @initialize()
    def begin(self) -> None:
        self.disk = self.open()

    def open(self) -> DiskTier:
        return tier(
            self.folder, calls=self.calls, clock=self.clock, files=self.files, seal=self.seal
        )

    def gone(self, keys: tuple[bytes, ...]) -> None:
        """The tier said that these went: they were there, and are not any more."""
        names = {key_of(number): number for number in range(91)}
        went = {names[key] for key in keys}
        assert len(went) == len(keys)
        assert went <= self.told
        self.forgot(went)

    def forgot(self, numbers: set[int]) -> None:
        """Not told any more; what a failing disk could not mark may be so after a restart."""
        self.told -= numbers
        self.unmarked |= numbers if "write_at" in self.calls.fails else set()

    @rule(number=numbers)
    def append(self, number: int) -> None:
        outcome = append(self.disk, number, tenant=TENANTS[number % 2])
        self.gone(outcome.evicted)
        if isinstance(outcome, Appended):
            assert number not in self.told
            self.told.add(number)
            self.unmarked.discard(number)
            self.may.add(number)

    @rule(number=numbers)
    def append_several(self, number: int) -> None:
        for each in range(number, min(number + 12, 91)):
            self.append(each)

    @rule(number=numbers)
    def read(self, number: int) -> None:
        missed = read(self.disk, number)
        if missed is None:
            assert number in self.may
            assert number in self.told
        elif missed is DiskMiss.ABSENT:
            assert number not in self.told
        if missed is not None:
            self.forgot({number})

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def read_what_is_there(self, data: st.DataObject) -> None:
        self.read(data.draw(st.sampled_from(sorted(self.told))))

    @rule(first=numbers, count=st.integers(0, 5))
    def remove(self, first: int, count: int) -> None:
        self.gone(self.disk.remove([key_of(number) for number in range(first, first + count)]))

    @rule(tenant=st.sampled_from([*TENANTS, None]))
    def clear(self, tenant: bytes | None) -> None:
        self.gone(self.disk.clear(tenant))
        left = {n for n in self.told if tenant is None or TENANTS[n % 2] == tenant}
        assert not left

    @rule()
    def verify(self) -> None:
        report = self.disk.verify()
        assert report.checked == len(self.told)
        self.gone(report.forgotten)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Not clean: the files as they are while it runs, under another name."""
        if clean:
            self.disk.close()
        else:
            copy = Path(tempfile.mkdtemp(prefix="antiphon-disk-"))
            shutil.copytree(self.folder, copy, dirs_exist_ok=True)
            self.disk.close()
            shutil.rmtree(self.folder)
            self.folder = copy
        self.disk = self.open()
        found = [block.key for block in self.disk.recover()]
        assert len(set(found)) == len(found)
        numbers = {number for number in range(91) if key_of(number) in found}
        assert self.told <= numbers <= self.told | self.unmarked
        self.told = numbers

    @rule(number=numbers)
    def damage(self, number: int) -> None:
        """A page of a block was overwritten before it was written: nobody may get it."""
        pages = pages_of(number)
        sums = checksums(pages)
        pages[1][100] ^= 1
        outcome = self.disk.append(block_of(number, tenant=TENANTS[number % 2]), pages, sums)
        self.gone(outcome.evicted)
        if isinstance(outcome, Appended):
            self.told.add(number)
            self.unmarked.discard(number)
            self.may.discard(number)

    @rule(what=st.sampled_from(["write_at", "create", "cut"]), error=st.sampled_from([5, 28]))
    def disk_fails(self, what: str, error: int) -> None:
        assert errno.EIO == 5
        assert errno.ENOSPC == 28
        self.calls.fails = {what: error}

    @rule(later_s=st.floats(0, 100))
    def disk_is_well(self, later_s: float) -> None:
        self.calls.fails = {}
        self.clock.now += later_s

    @invariant()
    def bounded_and_accounted_for(self) -> None:
        if hasattr(self, "disk"):
            stats = self.disk.stats()
            assert size_of(self.folder) <= stats.used_bytes <= LIMIT_BYTES
            assert stats.blocks == len(self.told)

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)


UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
LAWS = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_any_history() -> None:
    run_state_machine_as_test(DiskLaws, settings=LAWS)


class SealedLaws(DiskLaws):
    seal = RecordSeal(bytes(range(32)))


def test_any_history_of_sealed_records() -> None:
    run_state_machine_as_test(SealedLaws, settings=settings(LAWS, max_examples=30))


# ── negative controls: tiers that leave something out break the laws ─────────────────────────────


class TrustingFiles(RecordFiles):
    """Believes what lies there."""

    def read(self, entry, into):
        missed = super().read(entry, into)
        return None if missed is DiskMiss.DAMAGED else missed


class ForgetfulFiles(RecordFiles):
    """Removes in memory only."""

    def mark_removed(self, entry):
        return True


class BlindFiles(RecordFiles):
    """Leaves the header unread: another block may lie there."""

    def _expected(self, head, entry):
        header = decode_header(head)
        return header if hasattr(header, "checksums") else None


@pytest.mark.parametrize("faulty", [TrustingFiles, ForgetfulFiles])
def test_a_faulty_tier_is_found(faulty: type[RecordFiles]) -> None:
    class Faulty(DiskLaws):
        files = faulty

    many = settings(LAWS, phases=UNSHRUNK, max_examples=2000)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Faulty, settings=many)


def test_a_tier_that_does_not_compare_headers_gives_wrong_blocks(tmp_path: Path) -> None:
    disk = tier(tmp_path, files=BlindFiles)
    append(disk, 0)
    append(disk, 1)
    (file,) = tmp_path.glob("*.kv")
    data = file.read_bytes()
    file.write_bytes(data[len(data) // 2 :] + data[: len(data) // 2])
    into = new_pages(ORIGIN)
    assert disk.read(key_of(0), into) is None
    assert same(into, pages_of(1))
