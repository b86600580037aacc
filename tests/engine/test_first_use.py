"""Several processes that start at once: one works, the others wait for it."""

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from numba.core import config

from antiphon.engine.first_use import first_use
from antiphon.host import locked

SPAWN = multiprocessing.get_context("spawn")


def hold(folder: Path, inside: Event, leave: Event) -> None:
    with first_use(folder, "m"):
        inside.set()
        leave.wait(60)


def pass_through(folder: Path, what: str, inside: Event) -> None:
    with first_use(folder, what):
        inside.set()


def test_the_second_waits_for_the_first_and_all_later_ones_for_nobody(tmp_path: Path) -> None:
    inside, leave, second = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    first = SPAWN.Process(target=hold, args=(tmp_path, inside, leave))
    waiting = SPAWN.Process(target=pass_through, args=(tmp_path, "m", second))
    first.start()
    assert inside.wait(60)
    waiting.start()
    assert not second.wait(1.5)
    leave.set()
    assert second.wait(60)
    for process in (first, waiting):
        process.join(60)
        assert process.exitcode == 0
    with first_use(tmp_path, "m"), first_use(tmp_path, "m"):
        pass


def test_a_holder_that_dies_lets_the_next_one_in(tmp_path: Path) -> None:
    inside, leave, second = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    first = SPAWN.Process(target=hold, args=(tmp_path, inside, leave))
    first.start()
    assert inside.wait(60)
    first.kill()
    first.join(60)
    waiting = SPAWN.Process(target=pass_through, args=(tmp_path, "m", second))
    waiting.start()
    assert second.wait(60)
    waiting.join(60)


def test_what_fails_inside_is_raised_and_not_marked_as_done(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="mine"), first_use(tmp_path, "m"):
            raise OSError("mine")
    assert list((tmp_path / "kernels").iterdir()) == []


def test_what_was_compiled_into_another_folder_is_compiled_here_by_one_process_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "other"):
        monkeypatch.setattr(config, "CACHE_DIR", folder)
        with first_use(tmp_path, "m"):
            pass
    assert len(list((tmp_path / "kernels").iterdir())) == 2


def test_without_a_folder_nobody_waits(tmp_path: Path) -> None:
    with first_use(None, "m"), first_use(None, "m"):
        pass
    file = tmp_path / "file"
    file.touch()
    with first_use(file, "m"), first_use(file, "m"):
        pass


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with locked(tmp_path):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []
