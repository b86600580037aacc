import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon.drill.process_fault import (
    Process,
    cpu_seconds,
    file_limit,
    is_dead,
    is_stopped,
    kill,
    limit_files,
    process_of,
    resume,
    stop,
    terminate,
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


WRITER = """
import sys
for path in sys.stdin:
    try:
        with open(path.strip(), "wb") as file:
            file.write(b"x")
        print("wrote", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def test_a_process_whose_files_are_limited_can_not_write_until_they_are_not(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        process = found(child)

        def written() -> str:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{tmp_path / 'file'}\n")
            child.stdin.flush()
            return child.stdout.readline().strip()

        assert written() == "wrote"
        former = limit_files(process, 0)
        assert former is not None
        assert file_limit(process) == 0
        assert written() == str(errno.EFBIG)
        assert limit_files(process, former) == 0
        assert file_limit(process) == former
        assert written() == "wrote"
        child.kill()
    assert limit_files(process, 0) is None
    assert file_limit(process) is None


def test_a_process_is_told_to_end(child: subprocess.Popen[str]) -> None:
    process = found(child)
    assert terminate(process)
    assert child.wait() == -signal.SIGTERM
    assert not terminate(process)


def test_what_a_process_computes_is_counted(child: subprocess.Popen[str]) -> None:
    me = process_of(os.getpid())
    assert me is not None
    before = cpu_seconds(me)
    assert before is not None
    until(lambda: (cpu_seconds(me) or 0.0) > before)
    process = found(child)
    assert cpu_seconds(Process(process.pid, process.started - 1)) is None
    child.kill()
    child.wait()
    assert cpu_seconds(process) is None
