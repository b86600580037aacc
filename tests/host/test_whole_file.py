"""A file is there whole, or as it was before."""

from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.host import write_whole


def test_it_is_written_over_what_was_there_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    for content in (b"one", b"and another"):
        write_whole(file, content, makes_folder=True)
        assert file.read_bytes() == content
        assert list(file.parent.iterdir()) == [file]


def test_an_end_in_the_middle_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"before")

    def full(self: Path, content: bytes) -> None:
        with self.open("wb") as opened:
            opened.write(content[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsageError, match=r"file: can't be written: No space left on device"):
        write_whole(file, b"after")
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_is_made_only_if_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent/file: can't be written: No such file"):
        write_whole(tmp_path / "absent" / "file", b"")
    assert not (tmp_path / "absent").exists()
