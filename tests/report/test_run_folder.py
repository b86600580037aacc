"""A run on disk: it comes back equal, survives an interruption, and nothing else is overwritten."""

from dataclasses import replace
from pathlib import Path

import pytest
from call_records import call, failure, load_run, many_calls
from hypothesis import HealthCheck, given, settings

from antiphon.errors import BugError, UsageError
from antiphon.report import RunWriter, open_run, save_run, summarise, take_folder
from antiphon.types import CallRecord

RUN = load_run(warmup_s=1.0)
CALLS = (call(0, due=0.5), call(1, due=2.0), failure(2, due=3.0))
SUMMARY = summarise(RUN, CALLS)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "results/run"
    save_run(folder, RUN, CALLS, SUMMARY)
    return folder


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(many_calls())
def test_any_run_comes_back_equal(tmp_path: Path, records: list[CallRecord]) -> None:
    summary = summarise(RUN, records)
    save_run(tmp_path, RUN, records, summary, overwrite=True)
    read = open_run(tmp_path)
    assert (read.run, read.records, read.summary, read.whole) == (
        RUN,
        tuple(records),
        summary,
        True,
    )


def test_calls_that_ended_are_there_while_the_run_goes_on(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run", RUN) as writer:
        for place, record in enumerate(CALLS, 1):
            writer.add(record)
            read = open_run(tmp_path / "run")
            assert (read.records, read.whole) == (CALLS[:place], False)
            assert read.summary == summarise(read.run, CALLS[:place])


def test_an_interrupted_run_lasted_until_its_last_call_ended(tmp_path: Path) -> None:
    with RunWriter(tmp_path, RUN) as writer:
        for record in CALLS:
            writer.add(record)
        writer.interrupted(replace(RUN, notes=("Interrupted.",)))
    read = open_run(tmp_path)
    assert not read.whole
    assert read.run == replace(RUN, notes=("Interrupted.",), duration_s=4.0)
    assert read.summary.window_s == 3.0


def test_half_a_line_of_an_interrupted_run_is_left_out(tmp_path: Path) -> None:
    with RunWriter(tmp_path, RUN) as writer:
        for record in CALLS:
            writer.add(record)
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    assert open_run(tmp_path).records == CALLS[:2]


def test_half_a_line_of_a_whole_run_is_an_error(saved: Path) -> None:
    requests = saved / "requests.jsonl"
    requests.write_bytes(requests.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"requests.jsonl, line 3: is cut off"):
        open_run(saved)


def test_another_run_is_not_overwritten(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(UsageError, match=r"holds another run \(run.json, requests.jsonl, summary"):
        RunWriter(saved, RUN)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_overwriting_removes_what_was_there_and_nothing_else(saved: Path) -> None:
    (saved / "report.html").write_text("old")
    (saved / "notes.txt").write_text("mine")
    (saved / "other-run").mkdir()
    (saved / "other-run/run.json").write_text("somebody's")
    save_run(saved / "rate-1", RUN, CALLS, SUMMARY)
    save_run(saved / "rate-2", RUN, CALLS, SUMMARY)
    (saved / "rate-2/notes.txt").write_text("mine too")
    RunWriter(saved, RUN, overwrite=True).close()
    assert sorted(str(path.relative_to(saved)) for path in saved.rglob("*")) == [
        "notes.txt",
        "other-run",
        "other-run/run.json",
        "rate-2",
        "rate-2/notes.txt",
        "requests.jsonl",
        "run.json",
    ]
    assert open_run(saved).records == ()


def test_a_search_that_was_broken_off_is_not_overwritten(tmp_path: Path) -> None:
    save_run(tmp_path / "rate-1.5", RUN, CALLS, SUMMARY)
    with pytest.raises(UsageError, match=r"holds another run \(rate-1.5/\)"):
        take_folder(tmp_path)


def test_a_folder_that_only_holds_runs_may_take_another(tmp_path: Path) -> None:
    save_run(tmp_path / "yesterday", RUN, CALLS, SUMMARY)
    save_run(tmp_path, RUN, CALLS, SUMMARY, overwrite=True)
    assert open_run(tmp_path / "yesterday").records == CALLS


def test_a_link_is_not_followed_when_overwriting(saved: Path, tmp_path: Path) -> None:
    save_run(tmp_path / "elsewhere", RUN, CALLS, SUMMARY)
    (saved / "rate-1").symlink_to(tmp_path / "elsewhere")
    take_folder(saved, overwrite=True)
    assert open_run(tmp_path / "elsewhere").records == CALLS


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file: can't be written: a file is there"):
        RunWriter(tmp_path / "file", RUN)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (replace(CALLS[1], ended_at_s=float("nan")), "ended_at_s"),
        (replace(CALLS[1], due_at_s=-1.0), "due_at_s"),
        (replace(CALLS[1], sent_at_s=float("inf")), "sent_at_s"),
        (replace(CALLS[1], ended_at_s=2.05), "token_at_s: lies outside the call"),
        (replace(CALLS[1], token_at_s=(2.2, 2.1)), "token_at_s: times must be in order"),
        (replace(CALLS[1], token_at_s=(1.9, 2.1)), "token_at_s: lies outside the call"),
        (replace(CALLS[2], ended_at_s=1.0), "ended_at_s: is before sent_at_s"),
        (replace(CALLS[1], output_tokens=-1), "output_tokens: is negative"),
    ],
)
def test_a_call_that_can_not_be_is_not_written(
    tmp_path: Path, record: CallRecord, problem: str
) -> None:
    with RunWriter(tmp_path, RUN) as writer, pytest.raises(BugError, match=problem):
        writer.add(record)
    assert open_run(tmp_path).records == ()


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("requests.jsonl", b'"turn":0', b'"turn":"x"', r"line 1: Expected `int`, got `str`"),
        ("requests.jsonl", b'"turn":0', b'"tern":0', "line 1: unknown key 'tern'"),
        ("requests.jsonl", b'"due_at_s":2.0', b'"due_at_s":-2.0', "line 2: due_at_s: must be"),
        ("requests.jsonl", b'"usage"', b'"guess"', "line 1: Invalid enum value 'guess'"),
        ("requests.jsonl", b"{", b"(", "line 1: is not JSON"),
        ("run.json", b'"format": 1', b'"format": 9', "run.json: format: is 9"),
        ("run.json", b'"seed"', b'"sead"', "run.json: unknown key 'sead'"),
        (
            "summary.json",
            b'"calls": 2',
            b'"calls": 20',
            r"summary.json: calls: is of 21 calls, but",
        ),
        ("summary.json", b'"calls": 2', b'"calls": "2"', r"summary.json: Expected `int`"),
        ("summary.json", b'"p50"', b'"p51"', r"unknown key 'p51' at \$\.ttft"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(
    saved: Path, file: str, old: bytes, new: bytes, problem: str
) -> None:
    content = (saved / file).read_bytes()
    assert old in content
    (saved / file).write_bytes(content.replace(old, new, 1))
    with pytest.raises(UsageError, match=problem) as raised:
        open_run(saved)
    assert str(saved / file) in str(raised.value)


@pytest.mark.parametrize("file", ["run.json", "requests.jsonl"])
def test_a_missing_file_is_named(saved: Path, file: str) -> None:
    (saved / file).unlink()
    with pytest.raises(UsageError, match=rf"{file}: can't be read: No such file"):
        open_run(saved)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/run.json: can't be read"):
        open_run(tmp_path / "nowhere")


def test_no_half_written_file_is_left(saved: Path) -> None:
    assert sorted(path.name for path in saved.iterdir()) == [
        "requests.jsonl",
        "run.json",
        "summary.json",
    ]
