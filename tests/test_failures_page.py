"""The page of others' failures names tests: all of them are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_page_names_exists() -> None:
    page = (ROOT / "docs/reference/failures.md").read_text()
    there = {
        f"{file.name}::{name}"
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)
    }
    named = re.findall(r"`(test_\w+\.py::\w+)`", page)
    assert [name for name in named if name not in there] == []


def test_every_failure_has_a_test() -> None:
    page = (ROOT / "docs/reference/failures.md").read_text()
    rows = re.findall(r"^\| (\d+) \|(.+)\|$", page, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert all("`test_" in row for _, row in rows)
