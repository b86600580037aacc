"""A disk tier meets the system: processes that are killed, limits, folders that others use."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from disk_kit import LARGE, append, fill, readable, recovered, segments, tier
from record_kit import block_of, key_of, pages_of, same

from antiphon.errors import UsageError
from antiphon.store.disk import DiskRefusal, NotAppended, PrivateFolder, private_folder
from antiphon.store.record import new_pages

HERE = Path(__file__).parent
CHILD = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
from disk_kit import LARGE, append, fill, read, readable, tier
from record_kit import block_of, checksums, pages_of
from antiphon.store.disk import Appended
folder = Path(sys.argv[1])
"""


def child(code: str, folder: Path, **options: object) -> subprocess.Popen:
    text = CHILD.format(here=str(HERE)) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], stdout=subprocess.PIPE, text=True, **options
    )


def test_killed_in_the_middle_of_writing_it_comes_back_with_what_it_had(tmp_path: Path) -> None:
    """LMCache 2143: a restart left stale metadata behind. Here kill -9, just when a write began."""
    writing = """
        disk = tier(folder, LARGE, limit_bytes=1 << 30)
        for number in range(10**6):
            block = block_of(number), *(lambda pages: (pages, checksums(pages)))(pages_of(0, LARGE))
            print("begins", number, flush=True)
            assert isinstance(disk.append(*block), Appended)
            print("ended", number, flush=True)
    """
    pages = pages_of(0, LARGE)
    for after in (0, 1, 5):
        folder = tmp_path / f"after-{after}"
        with child(writing, folder) as process:
            assert process.stdout is not None
            while process.stdout.readline() != f"begins {after}\n":
                pass
            process.send_signal(signal.SIGKILL)
            later = process.stdout.read().count("ended")
        disk = tier(folder, LARGE, limit_bytes=1 << 30)
        found = disk.recover()
        assert after + later <= len(found) <= after + later + 1
        into = new_pages(LARGE)
        for number, block in enumerate(found):
            assert block == block_of(number)
            assert disk.read(block.key, into) is None
            assert same(into, pages)
        disk.close()


def test_a_file_size_limit_is_a_refusal(tmp_path: Path) -> None:
    code = """
        import resource
        disk = tier(folder, limit_bytes=1 << 20)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        for number in range(5):
            outcome = append(disk, number)
            print(number if isinstance(outcome, Appended) else outcome.reason)
        print(*readable(disk, range(5)))
    """
    with child(code, tmp_path / "f") as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.split() == ["0", "1", "full", "paused", "paused", "0", "1"]


def test_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir(mode=0o700)
    options = ["-o", "size=64k,mode=700", "tmpfs", str(mount)]
    try:
        subprocess.run(["mount", "-t", "tmpfs", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        disk = tier(mount, limit_bytes=1 << 20)
        fill(disk, range(200))
        good = readable(disk, range(200))
        assert good == list(range(good[0], 200))
        assert len(good) > 20
        disk.close()
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        with pytest.raises(UsageError, match="can't be written: Read-only"):
            tier(mount)
    finally:
        subprocess.run(["umount", str(mount)], check=True)


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_has_one_store(tmp_path: Path) -> None:
    """LMCache 1165: two instances on one host talked to each other through one path."""
    folder = tmp_path / "f"
    holding = """
        disk = tier(folder)
        print("locked", flush=True)
        sys.stdin.read()
    """
    with child(holding, folder, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match=rf"another store \(process {process.pid}\) uses it"):
            tier(folder)
        process.kill()
    disk = tier(folder)
    with pytest.raises(UsageError, match="--store-dir"):
        tier(folder)
    disk.close()
    tier(folder).close()


def test_a_locked_folder_is_shared_with_one_tier_after_the_other(tmp_path: Path) -> None:
    locked = PrivateFolder(tmp_path / "f")
    first = tier(locked)
    fill(first, range(3))
    first.close()
    with pytest.raises(UsageError, match="another store"):
        PrivateFolder(tmp_path / "f")
    second = tier(locked)
    second.recover()
    assert readable(second, range(4)) == [0, 1, 2]
    second.close()
    locked.close()
    PrivateFolder(tmp_path / "f").close()


def test_who_holds_a_lock_need_not_be_known(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(private_folder, "_LOCKS", tmp_path / "nowhere")
    held = PrivateFolder(tmp_path / "f")
    with pytest.raises(UsageError, match=r"another store \(of a process that can't be seen"):
        PrivateFolder(tmp_path / "f")
    held.close()


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="chmod 700"):
        tier(folder)
    folder.chmod(0o700)
    tier(folder)


def test_a_file_and_an_impossible_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(UsageError, match="--store-dir"):
            tier(tmp_path / name)
    with pytest.raises(UsageError, match="--store-dir"):
        tier(Path("/proc/antiphon"))


def test_a_link_leads_to_the_one_folder_that_is_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    disk = tier(tmp_path / "real")
    with pytest.raises(UsageError, match=rf"another store \(process {os.getpid()}\) uses it"):
        tier(tmp_path / "link")
    disk.close()
    fill(tier(tmp_path / "link"), [0])
    assert segments(tmp_path / "real")


def test_a_folder_that_is_deleted_takes_nothing_more_and_has_nothing(tmp_path: Path) -> None:
    """Blocks went on into files that had no name any more."""
    folder = tmp_path / "f"
    disk = tier(folder)
    fill(disk, range(6))
    shutil.rmtree(folder)
    gone = append(disk, 6)
    assert gone == NotAppended(DiskRefusal.FOLDER_GONE, tuple(key_of(n) for n in range(6)))
    assert append(disk, 7) == NotAppended(DiskRefusal.FOLDER_GONE)
    assert (disk.present([key_of(0)]), disk.stats().blocks, disk.stats().used_bytes) == (0, 0, 0)
    assert dict(disk.stats().dropped) == {"lost": 6, "put_folder_gone": 2}
    disk.close()
    assert recovered(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="can't be written"):
        tier(folder)


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    disk = tier(tmp_path)
    fill(disk, range(100))
    readable(disk, range(100))
    with pytest.raises(UsageError):
        tier(tmp_path)
    disk.close()
    assert descriptors() == before
