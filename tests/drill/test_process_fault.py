import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from antiphon.drill.process_fault import (
    Process,
    is_dead,
    is_stopped,
    kill,
    process_of,
    resume,
    stop,
)

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", ECHO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as popen:
        yield popen
        popen.kill()


def found(child: subprocess.Popen[str]) -> Process:
    process = process_of(child.pid)
    assert process is not None
    return process


def until(true: Callable[[], bool]) -> None:
    while not true():  # the suite's time limit ends it
        os.sched_yield()


def answers(child: subprocess.Popen[str]) -> bool:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("hi\n")
    child.stdin.flush()
    return child.stdout.readline() == "hi\n"


def test_a_killed_process_is_dead_even_before_its_parent_looks(
    child: subprocess.Popen[str],
) -> None:
    process = found(child)
    assert not is_dead(process)
    assert kill(process)
    until(lambda: is_dead(process))
    assert not is_stopped(process)
    child.wait()
    assert is_dead(process)
    assert not kill(process)


def test_a_stopped_process_stands_still_and_goes_on(child: subprocess.Popen[str]) -> None:
    process = found(child)
    assert answers(child)
    assert stop(process)
    until(lambda: is_stopped(process))
    assert not is_dead(process)
    assert resume(process)
    assert answers(child)
    assert not is_stopped(process)


def test_whoever_got_the_id_later_is_left_alone(child: subprocess.Popen[str]) -> None:
    process = found(child)
    earlier = Process(process.pid, process.started - 1)
    assert is_dead(earlier)
    assert not is_stopped(earlier)
    assert not kill(earlier)
    assert answers(child)


def test_nobody_has_the_id() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as popen:
        popen.wait()
    assert process_of(popen.pid) is None
    gone = Process(popen.pid, 1)
    assert is_dead(gone)
    assert not stop(gone)
    assert not resume(gone)
