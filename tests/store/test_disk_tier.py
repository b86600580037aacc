"""Blocks on disk: what is written is read, after a restart too, within the limit."""

from dataclasses import replace
from pathlib import Path

import pytest
from disk_kit import (
    LIMIT_BYTES,
    RECORD_BYTES,
    FaultyDisk,
    append,
    drop_count,
    fill,
    read,
    readable,
    segments,
    size_of,
    tier,
)
from record_kit import ORIGIN, block_of, checksums, header_of, key_of, pages_of

from antiphon.errors import BugError, UsageError
from antiphon.store.disk import Appended, DiskMiss, DiskRefusal, Fsync, NotAppended
from antiphon.store.record import ElementType, new_pages
from antiphon.types import Tier


def test_sizes_in_these_tests_are_what_they_say() -> None:
    assert header_of(1).record_bytes == RECORD_BYTES


def test_what_is_written_is_read(tmp_path: Path) -> None:
    disk = tier(tmp_path / "made")
    assert append(disk, 0) == Appended()
    assert read(disk, 0) is None
    assert key_of(0) in disk
    assert disk.block(key_of(0)) == block_of(0)
    assert read(disk, 1) is DiskMiss.ABSENT
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    assert segments(tmp_path / "made")[0].stat().st_mode & 0o777 == 0o600


def test_a_block_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, [0])
    assert append(disk, 0) == NotAppended(DiskRefusal.KNOWN)
    assert size_of(tmp_path) == RECORD_BYTES


def test_present_counts_up_to_the_first_gap(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, [0, 1, 3])
    assert disk.present([key_of(n) for n in range(5)]) == 2
    assert disk.present([key_of(9)]) == 0
    assert disk.present([]) == 0
    assert disk.present([key_of(3), key_of(0)]) == 2


def test_a_restart_finds_everything_in_the_order_of_writing(tmp_path: Path) -> None:
    """LMCache 1788: a disk cache that was not loaded again after a restart."""
    disk = tier(tmp_path)
    fill(disk, range(10))
    disk.close()
    again = tier(tmp_path)
    seen: list[tuple[int, int]] = []
    assert again.recover(lambda done, total: seen.append((done, total))) == tuple(
        block_of(n) for n in range(10)
    )
    assert readable(again, range(11)) == list(range(10))
    assert [done for done, _ in seen] == [4 * RECORD_BYTES, 8 * RECORD_BYTES, 10 * RECORD_BYTES]
    assert {total for _, total in seen} == {10 * RECORD_BYTES}
    fill(again, range(10, 12))
    again.close()
    assert len(tier(tmp_path).recover()) == 12


def test_before_recovery_it_writes_and_misses(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, [0, 1])
    disk.close()
    again = tier(tmp_path)
    assert read(again, 0) is DiskMiss.ABSENT
    fill(again, [1, 2])
    assert {block.key for block in again.recover()} == {key_of(0)}
    assert readable(again, range(3)) == [0, 1, 2]


def test_the_oldest_go_when_the_limit_is_reached(tmp_path: Path) -> None:
    """LMCache 900: a store without eviction ran out of memory."""
    disk = tier(tmp_path)
    evicted: list[bytes] = []
    for number in range(200):
        outcome = append(disk, number)
        assert isinstance(outcome, Appended)
        evicted += outcome.evicted
        assert size_of(tmp_path) == disk.stats().used_bytes <= LIMIT_BYTES
    left = readable(disk, range(200))
    assert left == list(range(left[0], 200))
    assert evicted == [key_of(n) for n in range(left[0])]
    assert len(left) >= 56
    assert disk.stats().evicted_blocks_total == len(evicted)


def test_what_was_read_since_it_was_written_gets_a_second_chance(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(40))
    assert read(disk, 1) is None
    disk.present([key_of(2)])
    _ = key_of(3) in disk
    disk.verify([key_of(4)])
    fill(disk, range(40, 80))
    assert readable(disk, range(5)) == [1]
    assert drop_count(disk, "rewritten") == 1
    fill(disk, range(80, 140))
    assert 1 in readable(disk, range(5)), "its second life was read too"
    fill(disk, range(140, 300))
    assert readable(disk, range(5)) == []


def test_a_scan_of_everything_does_not_make_everything_stay(tmp_path: Path) -> None:
    """Work for second chances is bounded: at most half of what goes is written again."""
    disk = tier(tmp_path)
    fill(disk, range(40))
    assert readable(disk, range(40)) == list(range(40))
    fill(disk, range(40, 120))
    assert size_of(tmp_path) <= LIMIT_BYTES
    assert readable(disk, range(110, 120)) == list(range(110, 120))


def test_a_lower_limit_after_a_restart_is_kept(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(40))
    disk.close()
    again = tier(tmp_path, limit_bytes=20 * RECORD_BYTES)
    blocks = again.recover()
    assert size_of(tmp_path) <= 20 * RECORD_BYTES
    assert [block.key for block in blocks] == [key_of(n) for n in readable(again, range(40))]
    assert blocks[-1] == block_of(39)


def test_a_tier_that_can_hold_no_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"store\.disk_bytes \(--store-disk\) 2000"):
        tier(tmp_path / "f", limit_bytes=2000)
    assert not (tmp_path / "f").exists()


def test_a_tier_of_one_block_holds_the_newest(tmp_path: Path) -> None:
    disk = tier(tmp_path, limit_bytes=2 * ORIGIN.block_bytes)
    fill(disk, range(5))
    assert readable(disk, range(5)) == [4]


def test_a_block_whose_record_is_larger_than_the_tier_is_refused(tmp_path: Path) -> None:
    tight = replace(ORIGIN, block_tokens=16, page_bytes=256)
    disk = tier(tmp_path, tight, limit_bytes=2 * tight.block_bytes)
    assert append(disk, 0, tight) == NotAppended(DiskRefusal.TOO_LARGE)
    assert segments(tmp_path) == []


def test_a_name_that_no_record_holds_is_refused(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    assert append(disk, 0, tenant=b"t" * 65) == NotAppended(DiskRefusal.UNRECORDABLE)
    assert drop_count(disk, "put_unrecordable") == 1


def test_pages_that_are_no_block_are_a_bug(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    with pytest.raises(BugError):
        disk.append(block_of(0), pages_of(0)[:1], [1])
    with pytest.raises(BugError):
        disk.read(key_of(0), [])


def test_pages_that_were_reassigned_before_they_were_written_are_not_given(tmp_path: Path) -> None:
    """vLLM 45704: a store that copied pages while they were computed anew corrupted its cache."""
    disk = tier(tmp_path)
    sealed = checksums(pages_of(0))
    assert disk.append(block_of(0), pages_of(1), sealed) == Appended()
    assert read(disk, 0) is DiskMiss.DAMAGED
    assert key_of(0) not in disk
    assert append(disk, 0) == Appended()
    assert read(disk, 0) is None


# ── removing ─────────────────────────────────────────────────────────────────────────────────────


def test_what_was_removed_does_not_come_back(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(6))
    assert disk.remove([key_of(1), key_of(9), key_of(4), key_of(1)]) == (key_of(1), key_of(4))
    assert readable(disk, range(6)) == [0, 2, 3, 5]
    fill(disk, [4])
    disk.close()
    again = tier(tmp_path)
    again.recover()
    assert readable(again, range(6)) == [0, 2, 3, 4, 5]


def test_an_earlier_copy_of_a_removed_block_does_not_come_back(tmp_path: Path) -> None:
    """A crash between the two steps of a second chance leaves a block in two segments."""
    disk = tier(tmp_path)
    fill(disk, range(3))
    copy = segments(tmp_path)[0].read_bytes()
    disk.close()
    (tmp_path / "000000000002.kv").write_bytes(copy)
    again = tier(tmp_path)
    assert len(again.recover()) == 3
    again.remove([key_of(1)])
    again.close()
    third = tier(tmp_path)
    third.recover()
    assert readable(third, range(3)) == [0, 2]


def test_a_tenant_is_cleared_for_good_and_others_stay(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    for number in range(6):
        append(disk, number, tenant=b"a" if number % 2 else b"b")
    assert disk.clear(b"a") == (key_of(1), key_of(3), key_of(5))
    disk.close()
    again = tier(tmp_path)
    again.recover()
    assert readable(again, range(6)) == [0, 2, 4]


def test_clearing_all_deletes_files(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(6))
    assert len(disk.clear()) == 6
    assert segments(tmp_path) == []
    assert disk.stats().used_bytes == 0
    fill(disk, range(3))
    assert readable(disk, range(6)) == [0, 1, 2]


def test_a_block_removed_while_it_gets_its_second_chance_stays_removed(tmp_path: Path) -> None:
    class RemovesWhileWriting(FaultyDisk):
        def write_at(self, fd, buffers, at):
            if self.armed and len(buffers) == 1 and len(buffers[0]) == RECORD_BYTES:
                self.armed = False
                self.removed = disk.remove([key_of(1)])
            return super().write_at(fd, buffers, at)

    calls = RemovesWhileWriting()
    calls.armed, calls.removed = True, ()
    disk = tier(tmp_path, calls=calls)
    fill(disk, range(40))
    assert read(disk, 1) is None
    fill(disk, range(40, 80))
    assert calls.removed == (key_of(1),)
    assert read(disk, 1) is DiskMiss.ABSENT
    disk.close()
    again = tier(tmp_path)
    again.recover()
    assert read(again, 1) is DiskMiss.ABSENT


# ── other origins ────────────────────────────────────────────────────────────────────────────────

OTHER_ORIGINS = {
    "model": replace(ORIGIN, identity=b"another model"),
    "layout": replace(ORIGIN, layout="another layout"),
    "page size": replace(ORIGIN, page_bytes=576),
    "block size": replace(ORIGIN, block_tokens=64),
    "element type": replace(ORIGIN, element=ElementType.BF16),
    "heads": replace(ORIGIN, first_head=1, heads=1),
}


@pytest.mark.parametrize("name", OTHER_ORIGINS)
def test_two_models_in_turn_neither_lose_nor_mix_their_blocks(tmp_path: Path, name: str) -> None:
    """LMCache 4463: pages of another layout were copied as if they were ours."""
    ours, theirs = tier(tmp_path), OTHER_ORIGINS[name]
    fill(ours, range(5))
    ours.close()
    other = tier(tmp_path, theirs)
    assert other.recover() == ()
    assert drop_count(other, "recover_foreign") == 5
    assert all(read(other, n, theirs) is DiskMiss.ABSENT for n in range(5))
    assert isinstance(append(other, 2, theirs), Appended)  # even under an equal key
    assert read(other, 2, theirs) is None
    assert other.clear() == (key_of(2),)
    assert isinstance(append(other, 3, theirs), Appended)
    other.close()
    again = tier(tmp_path)
    assert len(again.recover()) == 5
    assert readable(again, range(5)) == list(range(5))


def test_foreign_records_go_when_they_are_the_oldest_of_a_full_tier(tmp_path: Path) -> None:
    other = tier(tmp_path, OTHER_ORIGINS["model"])
    for number in range(20):
        append(other, number, OTHER_ORIGINS["model"])
    other.close()
    disk = tier(tmp_path)
    disk.recover()
    fill(disk, range(100, 200))
    assert size_of(tmp_path) <= LIMIT_BYTES
    assert len(readable(disk, range(100, 200))) >= 56


def test_one_tenant_never_finds_the_blocks_of_another(tmp_path: Path) -> None:
    """LMCache 4825: the salt was dropped on the way to the store. Here it is in the key."""
    disk = tier(tmp_path)
    append(disk, 1, tenant=b"a")
    assert disk.read(key_of(2), new_pages(ORIGIN)) is DiskMiss.ABSENT
    block = disk.block(key_of(1))
    assert block is not None
    assert block.tenant == b"a"


# ── verifying, counting, closing ─────────────────────────────────────────────────────────────────


def test_verify_forgets_what_is_damaged_and_nothing_else(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(4))
    with segments(tmp_path)[0].open("r+b") as file:
        file.seek(2 * RECORD_BYTES + 700)
        file.write(b"damage")
    assert disk.verify([key_of(0), key_of(9)]).forgotten == ()
    report = disk.verify()
    assert (report.checked, report.forgotten) == (4, (key_of(2),))
    assert readable(disk, range(4)) == [0, 1, 3]
    disk.close()
    again = tier(tmp_path)
    again.recover()
    assert again.verify().checked == 3


def test_counts(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(3))
    append(disk, 0)
    readable(disk, range(5))
    stats = disk.stats()
    assert stats.tier is Tier.DISK
    assert (stats.blocks, stats.used_bytes) == (3, 3 * RECORD_BYTES)
    assert (stats.put_blocks_total, stats.hit_blocks_total, stats.missed_blocks_total) == (3, 3, 2)
    assert dict(stats.dropped) == {"put_known": 1}


def test_nothing_works_after_close_and_nothing_is_raised(tmp_path: Path) -> None:
    disk = tier(tmp_path)
    fill(disk, range(3))
    disk.close()
    disk.close()
    assert read(disk, 0) is DiskMiss.CLOSED
    assert append(disk, 7) == NotAppended(DiskRefusal.CLOSED)
    assert disk.remove([key_of(0)]) == ()
    assert disk.clear() == ()
    assert disk.recover() == ()
    assert disk.verify().checked == 0
    again = tier(tmp_path)
    assert len(again.recover()) == 3


@pytest.mark.parametrize(
    ("fsync", "syncs"), [(Fsync.NEVER, 0), (Fsync.SEGMENT, 3), (Fsync.WRITE, 10)]
)
def test_when_it_is_flushed(tmp_path: Path, fsync: Fsync, syncs: int) -> None:
    calls = FaultyDisk()
    disk = tier(tmp_path, fsync=fsync, calls=calls)
    fill(disk, range(10))
    disk.close()
    assert calls.calls.count("sync") == syncs


def test_kv_that_can_not_be_verified_has_no_disk_tier(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="300 bytes"):
        tier(tmp_path, replace(ORIGIN, page_bytes=300))
    with pytest.raises(UsageError, match="layout"):
        tier(tmp_path, replace(ORIGIN, layout="l" * 600))
    tier(tmp_path)  # the folder was not left locked
