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
        (("--url", "http://127.0.0.1:9", "--prefill", "3"), "no workers"),
        (("--url", "http://127.0.0.1:9", "--decode", "0"), "no workers"),
        (("--url", "http://127.0.0.1:9", "--mixed", "1"), "no workers"),
        (("--max-tokens", "9-8"), '--max-tokens "9-8": the first number must not be larger'),
        (("--dry-run", "smolm2"), "unknown model"),
        (("--prefill", "1", "--decode", "1"), "no worker can be spared"),
        (("--prefill", "1", "--decode", "1", "--dry-run"), "no worker can be spared"),
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


def test_a_dry_run_prints_the_same_list_each_time(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'seed = 5\n[[fault]]\nafter-event = "offer"\noccurrence = 5\naction = "drain"\n'
        'target = "prefill-1"\nfor = "1s"\n'
        '[[fault]]\nat = "0.2s"\ntarget = "gateway"\naction = "delay"\nby = "50ms"\nfor = "0.5s"\n'
        '[[fault]]\nevery = "20s"\njitter = 0.5\ncount = 2\naction = "kill"\ntarget = "random"\n'
    )

    def shown(*arguments: str) -> list[str]:
        result = CliRunner().invoke(app, ["drill", "--plan", str(plan), "--dry-run", *arguments])
        assert result.exit_code == 0
        return result.output.splitlines()

    lines = shown()
    assert lines == shown() != shown("--seed", "6")
    assert len(lines) == 4
    assert "0.20 s  delay by 0.05 s for 0.5 s" in lines[0]
    assert "offer 5" in lines[-1]


def test_a_plan_for_another_cluster_is_refused_before_it_starts(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[[fault]]\nat = "1s"\naction = "kill"\ntarget = "decode-2"\n')
    for more in ((), ("--dry-run",)):
        said = refusal("--plan", str(plan), *more)
        assert 'fault 1 (kill): target: there is no worker "decode-2"' in said
        assert "decode-1" in said
    shown = CliRunner().invoke(app, ["drill", "--plan", str(plan), "--dry-run", "--decode", "3"])
    assert shown.exit_code == 0
