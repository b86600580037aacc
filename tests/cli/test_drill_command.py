"""What `antiphon drill` refuses before it starts anything."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["drill", *arguments])
    assert result.exit_code == 2
    return result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kind", "burn"), "--kind"),
        (("--url", "http://127.0.0.1:9", "--kv-memory", "1GiB"), "no settings"),
        (("--max-tokens", "9-8"), "--max-tokens"),
        (("--api-key-file", "keys"), "--url"),
        (("--plan", "none.toml"), "none.toml: can't be read"),
        (("--plan", "none.toml", "--kind", "stop"), "--kind goes without --plan"),
        (("--plan", "none.toml", "--every", "3"), "--every goes without --plan"),
        (("--plan", "none.toml", "--stop-for", "3"), "--stop-for goes without --plan"),
        (("--every", "0.1", "--duration", "86400"), "more than 100000 faults"),
    ],
)
def test_what_can_not_be_is_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(*arguments)


def test_options_go_over_the_load_of_a_plan_and_a_folder_must_be_one(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[load]\nduration = "5s"\n[[fault]]\nat = "7s"\naction = "corrupt"\n')
    assert "fault 1: at: 7 s is after the load" in refusal("--plan", str(plan), "--dry-run")
    longer = ("--dry-run", "--duration", "9")
    shown = CliRunner().invoke(app, ["drill", "--plan", str(plan), *longer])
    assert shown.exit_code == 0
    assert "7.00 s  corrupt" in shown.output
    assert "can't be made" in refusal("--plan", str(plan), *longer[1:], "-o", str(plan / "below"))


def test_a_key_file_must_hold_a_key(tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    there = ("--url", "http://127.0.0.1:9", "--api-key-file")
    assert "holds no key" in refusal(*there, str(empty))
    assert "can't be read" in refusal(*there, str(tmp_path / "none"))
