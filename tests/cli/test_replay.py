"""`antiphon replay` on logs of a whole run: scheduler and book, as the server has them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon import __version__
from antiphon.cli.app import app
from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import recorded
from antiphon.core.requests import BOOK, BOOK_METHODS
from antiphon.core.scheduler import SCHEDULER, SCHEDULER_METHODS
from antiphon.sim import ScriptedEngine, hashed_script
from antiphon.testing.strategies import MODEL, VOCAB_SIZE
from antiphon.types import (
    Abort,
    Config,
    Dispatch,
    FinishReason,
    Incarnation,
    KvConfig,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)
from antiphon.wire import DecisionLogWriter

SETUP = Setup(
    program="0.0.7",
    config=Config(
        kv=KvConfig(page_tokens=2, block_tokens=4),
        scheduler=SchedulerConfig(max_num_seqs=3, max_batched_tokens=8),
    ),
    pages=30,
    model=MODEL,
    max_model_len=48,
    worker=WorkerId("w0"),
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Eight requests that share beginnings, a deadline, a stop string and a refusal."""
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        writer = DecisionLogWriter(file)
        writer.begin(SETUP)
        drive(writer)
    return path


def drive(writer: DecisionLogWriter) -> None:
    machines = fresh_machines(SETUP)
    scheduler: Any = recorded(SCHEDULER, machines[SCHEDULER], SCHEDULER_METHODS, writer)
    book: Any = recorded(BOOK, machines[BOOK], BOOK_METHODS, writer)
    engine = ScriptedEngine(hashed_script(VOCAB_SIZE))
    now = 0.0

    def execute(commands: Any) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                execute(book.heard(scheduler.add(command.request, now), now))
            elif isinstance(command, Abort):
                scheduler.abort(command.request, now, command.sequence)

    info = WorkerInfo(
        id=WorkerId("w0"), incarnation=Incarnation("i0"), model=MODEL, max_model_len=48
    )
    book.observe(WorkerJoined(info), now)
    for number in range(8):
        execute(book.start(request(number), now))
    while (plan := scheduler.step(now)) is not None:
        now += 0.5
        for event in scheduler.complete(plan, engine.forward(plan), now):
            execute(book.heard(event, now))
        if plan.number == 3:
            execute(book.cancel(RequestId("r1"), now, 0, reason=FinishReason.STOP))
        execute(book.due(now))


def request(number: int) -> Request:
    return Request(
        id=RequestId(f"r{number}"),
        prompt=(1, 2, 3, 4) * (number % 3) + (number,) if number < 7 else (1,) * 60,
        sampling=SamplingParams(max_tokens=6, seed=number, n=1 + number % 2),
        deadline=2.0 if number == 4 else 1000.0,
    )


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["replay", *arguments], prog_name="antiphon")


def tampered(log: Path, change: Callable[[list[bytes]], None]) -> Path:
    lines = log.read_bytes().splitlines(keepends=True)
    change(lines)
    log.write_bytes(b"".join(lines))
    return log


def test_the_same_decisions(log: Path) -> None:
    count = len(log.read_bytes().splitlines()) - 1
    assert count > 50
    done = run(str(log))
    assert done.exit_code == 0, done.output
    assert done.output == (
        f"The same: {count:,} decisions (recorded by 0.0.7, replayed by {__version__})\n"
    )
    answer = json.loads(run(str(log), "--json").output)
    assert answer["equal"] is True
    assert answer["decisions"] == count
    assert answer["first_difference"] is None


@pytest.mark.parametrize(("machine", "method"), [("scheduler", "complete"), ("book", "heard")])
def test_the_first_decision_that_differs_is_shown(log: Path, machine: str, method: str) -> None:
    """A token in a decision is changed: there, and nowhere before, it departs."""
    head = f'{{"machine":"{machine}",'.encode()

    changed: list[int] = []

    def change(lines: list[bytes]) -> None:
        for place, line in enumerate(lines):
            facts, _, decision = line.partition(b'"decision":')
            if line.startswith(head) and re.search(rb'"token":\d', decision):
                decision = re.sub(rb'"token":(\d)', rb'"token":9\1', decision, count=1)
                lines[place] = facts + b'"decision":' + decision
                changed.append(place)
                return

    done = run(str(tampered(log, change)), "--json")
    assert done.exit_code == 1, done.output
    answer = json.loads(done.output)
    found = answer["first_difference"]
    assert answer["equal"] is False
    assert answer["decisions"] == changed[0]
    assert (found["machine"], found["method"]) == (machine, method)
    assert found["path"].endswith(".token")
    assert found["recorded"] == "9" + found["replayed"]
    text = run(str(log))
    assert text.exit_code == 1
    assert (
        f"in        {machine}.{method}, call {found['number']}, at {found['path']}" in text.output
    )


def test_another_configuration_decides_otherwise(log: Path) -> None:
    def change(lines: list[bytes]) -> None:
        lines[0] = lines[0].replace(b'"max_num_seqs":3', b'"max_num_seqs":2')

    assert run(str(tampered(log, change))).exit_code == 1


@pytest.mark.parametrize(
    ("place", "old", "new", "message"),
    [
        (0, b'"version":2', b'"version":1', "line 1: version 1"),
        (0, b'"page_tokens":2', b'"page_tokens":3', "kv.page_tokens"),
        (0, b'"pages":30', b'"pages":99999999999', "99999999999 pages are more than"),
        (1, b'"method"', b'"methods"', "line 2: "),
        (1, b'"machine":"book"', b'"machine":"cook"', "there is no machine 'cook'"),
        (2, b'"method":"start"', b'"method":"stop"', "no method 'stop'"),
        (1, b'"now":0.0', b'"now":"x"', "now can't be a str"),
    ],
)
def test_a_broken_log_is_one_line_and_exit_code_2(
    log: Path, place: int, old: bytes, new: bytes, message: str
) -> None:
    def change(lines: list[bytes]) -> None:
        assert old in lines[place]
        lines[place] = lines[place].replace(old, new, 1)

    done = run(str(tampered(log, change)))
    assert done.exit_code == 2
    assert done.output.startswith(f"antiphon: {log}: ")
    assert done.output.count(str(log)) == 1
    assert message in done.output
    assert done.output.count("\n") == 1


def test_a_log_that_breaks_off_says_in_which_line(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-20])
    done = run(str(log))
    assert done.exit_code == 2
    assert f"line {len(log.read_bytes().splitlines())}: " in done.output


def test_no_such_file(tmp_path: Path) -> None:
    done = run(str(tmp_path / "none.jsonl"))
    assert done.exit_code == 2
    assert "can't be read (No such file or directory)" in done.output
