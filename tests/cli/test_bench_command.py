"""What `antiphon bench` refuses before it sends anything, and how its help reads."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app

NOBODY = "http://127.0.0.1:9"
"""Nothing is sent there: what is refused is refused before."""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments], prog_name="antiphon")


def refusal(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rate", "0"), "--rate 0: must be above 0 requests a second"),
        (("--rate", "-1"), "--rate -1"),
        (("--rate", "nan"), "--rate nan"),
        (("--rate", "inf"), "--rate inf"),
        (("--duration", "60"), '--duration "60": must be a time such as'),
        (("--duration", "0s"), "more than 0"),
        (("--slo", "ttft=-1s"), '--slo "ttft=-1s": ttft "-1s": must be a time'),
        (("--slo", "ttft=0ms"), "more than 0"),
        (("--slo", "ttft=nan"), "must be a time"),
        (("--slo", "p99=1s"), '"p99=1s" is no target'),
        (("--slo", "nosuch:ttft=1s"), '"nosuch": the workload has no such class, only chat'),
        (("--slo-preset", "nosuch:code"), '"nosuch": the workload has no such class'),
        (("--find-goodput", "--slo", "nosuch:ttft=1s"), "no such class, only chat"),
        (
            ("--workload", "mix:chat=0.7,code=0.3", "--slo", "rag:ttft=1s"),
            '"rag": the workload has no such class, only chat, code',
        ),
        (("--slo-preset", "speech"), "must be one of chat"),
        (("--warmup", "60s"), "--warmup 60s: takes all of the 60 s"),
        (("--warmup", "100%"), '--warmup "100%": must be'),
        (("--warmup", "-5%"), '--warmup "-5%": must be'),
        (("--warmup", "nan%"), '--warmup "nan%": must be'),
        (("--warmup", "%"), '--warmup "%": must be'),
        (("--workload", "chatter"), "must be one of"),
        (("--workload", "chat:words=5"), "there is no option"),
        (("--workload", "chat", "--trace", "x.csv"), "--trace and --workload: give one of them"),
        (("--trace", "/nowhere/trace.jsonl"), "/nowhere/trace.jsonl"),
        (("--arrivals", "rush"), "arrivals: must be one of"),
        (("--arrivals", "constant"), "there is no rate: give --rate"),
        (("--arrivals", "trace"), "no times of its own"),
        (("--timeout", "soon"), '--timeout "soon"'),
        (("--extra-body", "{"), "--extra-body: is no JSON"),
        (("--extra-body", "[1]"), "--extra-body: must be a JSON object"),
        (("--api-key-file", "/nowhere/key"), "--api-key-file /nowhere/key: can't be read"),
        (("--tokenizer", "/nowhere/tokenizer.json"), "--tokenizer /nowhere/tokenizer.json"),
        (("--tokenizer", "no-such-model"), "--tokenizer: "),
        *(
            (("--extra-body", f'{{"{field}": 1}}'), f"--extra-body: {field} is planned")
            for field in ("model", "messages", "prompt", "max_tokens", "max_completion_tokens")
        ),
        *(
            (("--extra-body", f'{{"top_k": 1, "{field}": 1}}'), f"--extra-body: {field} is planned")
            for field in ("min_tokens", "n", "stream", "stream_options", "seed")
        ),
        (("--min-rate", "1"), "--min-rate: has no effect without --find-goodput"),
        (("--max-rate", "1"), "--max-rate: has no effect without --find-goodput"),
        (("--tolerance", "0.1"), "--tolerance: has no effect without --find-goodput"),
        (("--find-slo-scale", "--rate", "1", "--tolerance", "0.1"), "--tolerance: has no effect"),
        (("--scales", "1,2"), "--scales: has no effect without --find-slo-scale"),
        (("--find-goodput", "--scales", "1,2"), "--scales: has no effect"),
        (("--overwrite",), "--overwrite: has no effect without -o"),
        (("--find-goodput", "--find-slo-scale"), "give one of them"),
        (("--find-goodput", "--requests", "5"), "--requests: a search says itself"),
        (("--find-goodput", "--min-rate", "0"), "--min-rate 0: must be above 0"),
        (("--find-goodput", "--max-rate", "nan"), "--max-rate nan: must be above 0"),
        (("--find-goodput", "--min-rate", "9", "--max-rate", "1"), "is above --max-rate 1"),
        (("--find-goodput", "--rate", "9", "--max-rate", "2"), "the search begins there"),
        (("--find-goodput", "--tolerance", "0"), "tolerance"),
        (("--find-slo-scale", "--scales", "1,0"), '--scales "1,0": must be factors above 0'),
        (("--find-slo-scale", "--scales", "nan"), '--scales "nan"'),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(NOBODY, *arguments)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("compar", "neither a URL"),
        ("foo", "compare and report"),
        ("http://127.0.0.1:99999", "Port out of range 0-65535"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("127.0.0.1:8000", "neither a URL"),
        ("ftp://127.0.0.1", "no server"),
        ("http://", "no server"),
        ("http://127.0.0.1:0", "no server"),
        ("http://127.0.0.1:99999", "no server"),
        ("http://127.0.0.1:8000/?a=1", "no query"),
    ],
)
def test_what_is_no_server_is_refused(url: str, said: str) -> None:
    assert said in refusal(url)


def test_a_url_must_be_there() -> None:
    assert "URL is missing" in refusal("--rate", "2")


@pytest.mark.parametrize("content", ["", "\n", "not json\n", '{"timestamp": 1}\n', "a,b\n1,2\n"])
def test_a_broken_trace_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(content)
    assert str(trace) in refusal(NOBODY, "--trace", str(trace)).replace("\n", "")


def test_help_of_the_group_is_that_of_its_default_command() -> None:
    text = run("--help").output
    assert text.startswith("Usage: antiphon bench [OPTIONS] [URL]")
    for part in ("--find-goodput", "Exit code 0", "compare", "report"):
        assert part in text
    assert "\n  run " not in text.rpartition("Commands:")[2]


@pytest.mark.parametrize("command", ["compare", "report"])
def test_each_command_has_help_of_its_own(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: antiphon bench {command}" in result.output


def test_without_anything_help_is_shown() -> None:
    assert "Usage: antiphon bench" in run().output


def test_workloads_and_arrivals_are_listed() -> None:
    text = run("--list-workloads").output
    for part in ("chat:", "agents:", "trace:", "multi-turn:", "input=…", "bursts:cv=2", "[5s]"):
        assert part in text


def test_a_comparison_needs_two_runs(tmp_path: Path) -> None:
    assert "two" in refusal("compare", str(tmp_path))
    said = refusal("compare", str(tmp_path), str(tmp_path))
    assert "run.json" in said


def test_of_a_search_that_was_killed_in_its_first_run_that_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "rate-2").mkdir()
    (tmp_path / "rate-2/run.json").write_text("{}")
    said = refusal("report", str(tmp_path))
    assert "broken off before its first run was over" in said
    assert "rate-2" in said


def test_what_is_no_run_is_not_drawn(tmp_path: Path) -> None:
    assert "run.json" in refusal("report", str(tmp_path / "nothing"))
    (tmp_path / "search.json").write_text("{")
    assert "search.json" in refusal("report", str(tmp_path))
