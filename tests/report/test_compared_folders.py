"""Folders side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from call_records import RUN, load_run, some
from found_searches import GOODPUT

from antiphon.errors import UsageError
from antiphon.report import (
    SavedSearch,
    compare_folders,
    save_run,
    save_search,
    summarise,
    take_folder,
)


def run_in(folder: Path, seed: int) -> Path:
    run, records = replace(RUN, title=folder.name), some(seed)
    save_run(folder, run, records, summarise(run, records))
    return folder


def search_in(folder: Path) -> Path:
    take_folder(folder)
    save_search(folder, SavedSearch(run=load_run(title=folder.name), goodput=GOODPUT))
    return folder


def test_runs_are_compared(tmp_path: Path) -> None:
    compared = compare_folders([run_in(tmp_path / "a", 1), run_in(tmp_path / "b", 2)])
    assert compared.comparison.names == ("a", "b")
    assert "within noise" in compared.page()


def test_searches_are_compared(tmp_path: Path) -> None:
    compared = compare_folders([search_in(tmp_path / "a"), search_in(tmp_path / "b")])
    assert compared.comparison.headline == ("Goodput per device, against a: b 1.00× within noise.")
    assert "Goodput per device, against a" in compared.page()


def test_a_search_is_not_compared_with_a_run(tmp_path: Path) -> None:
    run, search = run_in(tmp_path / "run", 1), search_in(tmp_path / "search")
    with pytest.raises(UsageError, match=r"search holds a search, .*run does not; name one kind"):
        compare_folders([run, search])


@pytest.mark.parametrize("count", [0, 1])
def test_one_folder_is_not_enough(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError, match="at least two"):
        compare_folders([run_in(tmp_path / "a", 1)][:count])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing/run.json: can't be read"):
        compare_folders([run_in(tmp_path / "a", 1), tmp_path / "nothing"])
