import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.workload import (
    AnswerOf,
    Api,
    JsonLines,
    Message,
    OwnTimes,
    Poisson,
    Session,
    has_own_times,
    parse_workload,
    timed,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


def written(file: Path, *rows: object) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def sessions(file: Path, **options: object) -> list[Session]:
    return list(JsonLines(file=file, **options).sessions(1))  # type: ignore[arg-type]


def test_a_prompt_with_its_defaults(file: Path) -> None:
    (session,) = sessions(written(file, {"prompt": "Why?\n"}))
    (turn,) = session.turns
    assert (turn.ask.text, turn.ask.max_tokens, turn.ask.ignore_eos) == ("Why?\n", 256, False)
    assert (turn.ask.api, turn.ask.model, turn.history) == (Api.CHAT, None, ())
    assert (session.number, session.slo_class) == (0, "jsonl")


def test_what_a_line_says_goes_into_its_call(file: Path) -> None:
    rows = [
        {"prompt": "a", "max_tokens": 5, "slo_class": "fast", "model": "m"},
        {"prompt": "b", "output_tokens": 7},
    ]
    first, second = sessions(written(file, *rows), api=Api.COMPLETION)
    assert (first.turns[0].ask.max_tokens, first.turns[0].ask.ignore_eos) == (5, False)
    assert (first.slo_class, first.turns[0].ask.model) == ("fast", "m")
    assert (second.turns[0].ask.max_tokens, second.turns[0].ask.ignore_eos) == (7, True)
    assert second.turns[0].ask.api is Api.COMPLETION


def test_messages_before_the_last_are_history(file: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
    ]
    (session,) = sessions(written(file, {"messages": messages}))
    assert session.turns[0].history == (Message("system", ("Be brief.",)),)
    assert session.turns[0].ask.text == "Why?"


def test_rows_of_a_session_are_turns_that_may_quote_answers(file: Path) -> None:
    again = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "answer_of": 0},
        {"role": "user", "content": "Really?"},
    ]
    rows = [
        {"prompt": "Why?", "session": 1},
        {"messages": again, "session": 1, "pause_s": 2},
        {"prompt": "alone"},
        {"prompt": "alone, too"},
    ]
    chat, *alone = sessions(written(file, *rows))
    assert [turn.after for turn in chat.turns] == [(), (0,)]
    assert chat.turns[1].pause_s == 2
    assert chat.turns[1].history[1] == Message("assistant", (AnswerOf(0),))
    assert [turn.ask.number for one in (chat, *alone) for turn in one.turns] == [0, 1, 2, 3]
    assert len(alone) == 2


def test_it_begins_again_only_if_asked_to(file: Path) -> None:
    written(file, {"prompt": "a"}, {"prompt": "b"})
    assert len(sessions(file)) == 2
    again = islice(parse_workload(f"jsonl:{file},repeat=yes").sessions(1), 5)
    seen = [(one.number, one.turns[0].ask.number, one.turns[0].ask.text) for one in again]
    assert seen == [(n, n, "ab"[n % 2]) for n in range(5)]


def test_empty_lines_are_passed_over(file: Path) -> None:
    file.write_text('\n{"prompt": "a"}\n   \n{"prompt": "b"}')
    assert [one.turns[0].ask.text for one in sessions(file)] == ["a", "b"]


def test_a_file_may_have_its_own_times(file: Path) -> None:
    rows = [
        {"prompt": "a", "at_s": 1},
        {"prompt": "b", "at_s": 1.5, "session": "x"},
        {"prompt": "c", "session": "x"},
        {"prompt": "d", "at_s": 5},
    ]
    workload = JsonLines(file=written(file, *rows))
    begun = list(timed(workload, OwnTimes(), seed=1))
    assert [one.at_s for one in begun] == [1, 1.5, 5]
    assert [len(one.session.turns) for one in begun] == [1, 2, 1]
    assert [one.at_s for one in timed(workload, OwnTimes(speed=2), seed=1)] == [0.5, 0.75, 2.5]
    assert workload.own_rate_per_s(1) == pytest.approx(3 / 4)
    assert has_own_times(workload)
    assert not has_own_times(JsonLines(file=written(file, {"prompt": "a"})))


BAD_ROWS: list[tuple[str, str]] = [
    ("{", "row: is not JSON"),
    ("[" * 100_000, "row: is not JSON"),
    ("9" * 10_000, "row: is not JSON"),
    ("[]", "row: must be a JSON object"),
    ("{}", "prompt: give either prompt or messages"),
    ('{"prompt": "a", "messages": []}', "prompt: give either prompt or messages"),
    ('{"prompt": ""}', "prompt: must be text that is not empty, not ''"),
    ('{"prompt": 5}', "prompt: must be text that is not empty, not 5"),
    ('{"prompt": "\\ud800"}', "prompt: must be valid Unicode, without lone surrogates"),
    ('{"promt": "a"}', "promt: is no field: they are prompt, messages, max_tokens"),
    ('{"messages": []}', "messages: must be a list of 1 to 10000 messages"),
    ('{"messages": "a"}', "messages: must be a list of 1 to 10000 messages"),
    ('{"messages": ["a"]}', "messages[0]: must be a JSON object"),
    ('{"messages": [{"content": "a"}]}', "messages[0].role: must be text that is not empty"),
    ('{"messages": [{"role": "user"}]}', "messages[0]: must have a role, and content"),
    ('{"messages": [{"role": "user", "content": []}]}', "messages[0].content: must be text"),
    (
        '{"messages": [{"role": "user", "content": "a", "name": "b"}]}',
        "messages[0]: must have a role, and content (text) or answer_of, and no more",
    ),
    (
        '{"messages": [{"role": "assistant", "content": "a"}]}',
        "messages: the last one must be the user's",
    ),
    ('{"messages": [{"role": "user", "answer_of": 0}]}', "messages: the last one must be the user"),
    (
        '{"messages": [{"role": "user", "answer_of": -1}]}',
        "messages[0].answer_of: must be the number of an earlier row",
    ),
    (
        '{"messages": [{"role": "assistant", "answer_of": 0}, {"role": "user", "content": "a"}]}',
        "messages: answer_of 0 must be an earlier row of the session: this is row 0",
    ),
    ('{"prompt": "a", "max_tokens": 0}', "max_tokens: must be a whole number from 1 to 1048576"),
    ('{"prompt": "a", "max_tokens": 1.5}', "max_tokens: must be a whole number"),
    ('{"prompt": "a", "max_tokens": true}', "max_tokens: must be a whole number"),
    ('{"prompt": "a", "output_tokens": -1}', "output_tokens: must be a whole number"),
    (
        '{"prompt": "a", "output_tokens": 1, "max_tokens": 1}',
        "output_tokens: give either it (exactly so many) or max_tokens",
    ),
    ('{"prompt": "a", "at_s": -1}', "at_s: must be seconds from 0 on, not -1"),
    ('{"prompt": "a", "at_s": NaN}', "at_s: must be seconds from 0 on, not nan"),
    ('{"prompt": "a", "at_s": 1e999}', "at_s: must be seconds from 0 on, not inf"),
    ('{"prompt": "a", "pause_s": "1"}', "pause_s: must be seconds from 0 on, not '1'"),
    ('{"prompt": "a", "slo_class": 5}', "slo_class: must be text"),
    ('{"prompt": "a", "session": true}', "session: must be text"),
    (json.dumps({"prompt": "a", "model": "m" * 300}), "model: must have at most 256 characters"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_a_bad_row_is_named(file: Path, line: str, problem: str) -> None:
    file.write_text(f'{{"prompt": "fine"}}\n\n{line}\n')
    with pytest.raises(UsageError) as raised:
        sessions(file)
    assert str(raised.value).startswith(f"{file}, line 3: {problem}")
    with pytest.raises(UsageError, match="line 3"):
        timed(JsonLines(file=file), Poisson(1), seed=1)  # before anything is sent


@pytest.mark.parametrize(
    ("rows", "line", "problem"),
    [
        ([{"session": "a"}, {"session": "b"}, {"session": "a"}], 3, "session: rows of 'a' must"),
        ([{"session": "a"}, {"session": "a", "at_s": 2}], 2, "at_s: only the first row"),
        ([{"session": "a"}, {"session": "a", "slo_class": "x"}], 2, "slo_class: must be that of"),
    ],
)
def test_rows_that_make_no_session_are_named(
    file: Path, rows: list[dict[str, object]], line: int, problem: str
) -> None:
    written(file, *({"prompt": "a", **row} for row in rows))
    with pytest.raises(UsageError) as raised:
        sessions(file)
    assert str(raised.value).startswith(f"{file}, line {line}: {problem}")


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ((1, None), "line 2: at_s: is missing: give every session one, or choose other arrivals"),
        ((2, 1), "line 2: at_s: 1 is before that of an earlier row"),
    ],
)
def test_own_times_must_be_there_and_in_order(
    file: Path, times: tuple[float | None, ...], problem: str
) -> None:
    rows = [{"prompt": "a"} | ({} if at is None else {"at_s": at}) for at in times]
    workload = JsonLines(file=written(file, *rows))
    assert len(list(timed(workload, Poisson(1), seed=1))) == 2, "they matter only if asked for"
    with pytest.raises(UsageError, match=problem):
        timed(workload, OwnTimes(), seed=1)


def test_messages_are_not_for_the_completion_api(file: Path) -> None:
    written(file, {"messages": [{"role": "user", "content": "a"}]})
    with pytest.raises(UsageError, match="line 1: messages: the completion API takes none"):
        sessions(file, api=Api.COMPLETION)


def bad_files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield folder / "absent", "absent: can't be read: No such file"
    yield folder, "can't be read: it is not a regular file"
    os.mkfifo(folder / "pipe")
    yield folder / "pipe", "pipe: can't be read: it is not a regular file"
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    yield folder / "binary", "binary, after line 0: not UTF-8"
    (folder / "zeros").write_bytes(bytes(100))
    yield folder / "zeros", "zeros, line 1: row: is not JSON"
    (folder / "long").write_bytes(b"x" * (2**22 + 1))
    yield (
        folder / "long",
        "long, line 1: longer than 4194304 characters: this is no list of prompts",
    )
    (folder / "empty").write_text("")
    yield folder / "empty", "empty: has no prompts: give lines such as"
    (folder / "blank").write_text("\n \n")
    yield folder / "blank", "blank: has no prompts"


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    for file, problem in bad_files(tmp_path):
        with pytest.raises(UsageError) as raised:
            timed(JsonLines(file=file), Poisson(1), seed=1)
        assert problem in str(raised.value)
        with pytest.raises(UsageError):
            sessions(file, repeat=True)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="can't be read"):
        list(parse_workload("jsonl:a\0b").sessions(1))
    with pytest.raises(UsageError, match="can't be read"):
        list(parse_workload(f"jsonl:{'x' * 3000}").sessions(1))
