"""Nobody is told to shut a folder that others use."""

from pathlib import Path

import pytest

from antiphon.host import open_folder_remedy

OTHER = "choose a folder of its own"


@pytest.mark.parametrize("shared", ["/etc", "/tmp", "/none"])
def test_a_folder_of_all_is_left_as_it_is(shared: str) -> None:
    assert open_folder_remedy(Path(shared)) == OTHER


def test_an_empty_one_or_ours_may_be_shut(tmp_path: Path) -> None:
    assert open_folder_remedy(tmp_path) == "chmod 700 it"
    for name in ("000000000001.kv", "store.sock", "mixed-0.data.sock"):
        (tmp_path / name).touch()
    assert open_folder_remedy(tmp_path) == "chmod 700 it"
    (tmp_path / "thesis.tex").touch()
    assert open_folder_remedy(tmp_path) == OTHER


def test_one_in_which_all_may_write_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert open_folder_remedy(tmp_path) == OTHER
