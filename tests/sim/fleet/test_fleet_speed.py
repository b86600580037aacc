"""Fleets that can't be divided as is asked are refused by `benchmarks/fleet_speed.py`, which would
measure a smaller one, or one with cells that do nothing."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--workers 16 --cells 2", "at most 1 for 16"),
        ("--workers 64 --cells 8", "at most 4 for 64"),
        ("--workers 1000 --cells 3", "a multiple of 6"),
        ("--workers 17", "a multiple of 2"),
        ("--workers 0", "a multiple of 2"),
        ("--workers -2", "a multiple of 2"),
        ("--cells 0", "at least one"),
        ("--cells 3", "--workers 1000: half"),
        ("--profile --cells 2", "leave out --cells"),
    ],
)
def test_what_can_not_be_divided_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    problem: str,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    nowhere = "--trace /nowhere --seconds 1"
    monkeypatch.setattr(sys, "argv", ["fleet_speed.py", *arguments.split(), *nowhere.split()])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(BENCHMARKS / "fleet_speed.py"), run_name="__main__")
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "cells"), [(2, 1), (16, 1), (200, 2), (1000, 2), (1000, 4)])
def test_the_cells_of_a_fleet_are_all_of_it(
    monkeypatch: pytest.MonkeyPatch, workers: int, cells: int
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    script = runpy.run_path(str(BENCHMARKS / "fleet_speed.py"))
    assert script["_undividable"](workers, cells) is None
    made: list[tuple[int, int]] = []

    def one(roles: dict[object, int], _: object, load, *__: object, seed: int):
        made.append((sum(roles.values()), load.copies))

    monkeypatch.setitem(script["fleet_of"].__globals__, "mooncake_fleet", one)
    for cell in range(cells):
        script["fleet_of"](workers, Path(), 1.0, cell, cells)
    assert sum(count for count, _ in made) == workers
    assert sum(copies for _, copies in made) == script["_copies"](workers)
    assert all(copies for _, copies in made)
