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
    ],
)
def test_what_can_not_be_is_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(*arguments)


def test_a_key_file_must_hold_a_key(tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n")
    there = ("--url", "http://127.0.0.1:9", "--api-key-file")
    assert "holds no key" in refusal(*there, str(empty))
    assert "can't be read" in refusal(*there, str(tmp_path / "none"))
