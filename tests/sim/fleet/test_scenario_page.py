"""docs/reference/scenario.md has each key that a scenario may have, and no other."""

import re
from pathlib import Path

import pytest

from antiphon.core.faults import Table
from antiphon.sim.fleet import parse_scenario

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/scenario.md").read_text()
HEADINGS = {
    "model": "Top level",
    "workload": "`[load]`",
    "role": "`[[pool]]`",
    "layerwise": "`[link]`",
    "workers-per-host": "`[store]`",
}
"""A key that tells a table."""
TABLES = {"load", "link", "store", "pool", "fault", "router", "scheduler", "kv", "cluster"}


def documented(heading: str) -> set[str]:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return set(re.findall(r"^\| `([a-z-]+)` \|", found[1], re.M))


def test_each_key_is_on_the_page_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[int, set[str]] = {}
    take = Table.take

    def noting(table: Table, key: str, default: object = None) -> object:
        read.setdefault(id(table), set()).add(key)
        kept.append(table)
        return take(table, key, default)

    kept: list[Table] = []
    monkeypatch.setattr(Table, "take", noting)
    pools = "".join(
        f"[[pool]]\n{line}\n" for line in ('device = "h100"', 'name = "p"\n' + PUBLISHED)
    )
    store = "[store]\ngigabytes = 0\n"
    parse_scenario(f'model = "opt-13b"\n{pools}{store}', Path("it.toml"))
    found = {key: set[str]() for key in HEADINGS}
    for keys in read.values():
        for key in HEADINGS:
            if key in keys:
                found[key] |= keys
    for key, heading in HEADINGS.items():
        top = TABLES if key == "model" else set[str]()
        assert found[key] - top == documented(heading), heading


PUBLISHED = 'published = "distserve"'
