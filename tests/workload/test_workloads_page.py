"""docs/reference/workloads.md says what there is, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from antiphon.workload import (
    ARRIVALS,
    WORKLOADS,
    JsonLines,
    WorkloadKind,
    parse_arrivals,
    parse_lengths,
    parse_workload,
)
from antiphon.workload.options import OptionLine
from antiphon.workload.prompt_rows import ROW_FIELDS

PAGE = (Path(__file__).parents[2] / "docs/reference/workloads.md").read_text()
KINDS = {kind.name: kind for kind in WORKLOADS}


def section(name: str) -> str:
    """What is below the heading of that workload."""
    found = re.search(rf"^### `{name}`\n(.*?)(?=^##)", PAGE, re.M | re.S)
    assert found, name
    return found[1]


def row(line: OptionLine) -> str:
    default = f"`{line.default}`" if line.default else ""
    return f"| `{line.key}` | {default} | {line.help} |"


def test_it_has_the_workloads_that_there_are() -> None:
    assert re.findall(r"^### `(.+)`$", PAGE, re.M) == list(KINDS)
    listed = re.search(r"^## Workloads\n\n(.*?)\n\n", PAGE, re.M | re.S)
    assert listed
    assert listed[1].splitlines()[2:] == [f"| `{k.name}` | {k.summary} |" for k in WORKLOADS]


@pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.name)
def test_options_and_defaults_are_those_of_the_registry(kind: WorkloadKind) -> None:
    text = section(kind.name)
    table = re.search(
        r"^\| option \| default \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)*)", text, re.M
    )
    if not kind.options:
        assert table is None
        return
    assert table
    assert table[1].splitlines() == [row(line) for line in kind.options]


def test_arrivals_are_those_that_there_are() -> None:
    text = PAGE.partition("\n## Arrivals\n")[2]
    for kind in ARRIVALS:
        assert f"| `{kind.example}` | {kind.summary} |" in text
        (options,) = re.findall(rf"^\| `{re.escape(kind.example)}` \| (`.*) \|$", text, re.M)
        assert re.findall(r"`(\w+)`: ", options) == [line.key for line in kind.options]


def test_the_fields_of_a_line_are_those_that_are_read() -> None:
    table = section("jsonl").partition("| field | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    fields = [re.match(r"\| `(\w+)` \|", line) for line in table.splitlines()]
    assert sorted(match[1] for match in fields if match) == sorted(ROW_FIELDS)


def test_its_example_of_a_file_is_one(tmp_path: Path) -> None:
    example = re.search(r"^```json\n(.*?)^```", section("jsonl"), re.M | re.S)
    assert example
    assert all(json.loads(line) for line in example[1].splitlines())
    file = tmp_path / "prompts.jsonl"
    file.write_text(example[1])
    assert [len(one.turns) for one in JsonLines(file=file).sessions(1)] == [1, 2]


def test_its_commands_are_understood() -> None:
    commands = re.findall(r"^antiphon bench URL (.*)$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        (workload,) = re.findall(r"--workload (\S+)", command)
        assert parse_workload(workload)
        for arrivals in re.findall(r"--arrivals (\S+)", command):
            assert parse_arrivals(arrivals, 2.0 if "--rate" in command else None)
    for text in re.findall(r"`(mix:\S+)`", section("mix")):
        assert parse_workload(text)
    (lengths,) = re.findall(r"^\| length, in tokens \| (.*?);", PAGE, re.M)
    forms = re.findall(r"`([^`]+)`", lengths)
    assert len(forms) == 6
    assert all(parse_lengths(form) for form in forms)
