"""Faults of a process: a signal, and the proof that it had its effect.

A process id may have been given to somebody else meanwhile, so a process is named by its id and the
time at which it started; a signal goes to that one or to nobody.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat behind the name, which is in parentheses."""


@dataclass(frozen=True, slots=True)
class Process:
    """One life of one process."""

    pid: int
    started: int
    """Clock ticks since boot."""


def process_of(pid: int) -> Process | None:
    """Who has this id now; None: nobody."""
    fields = _stat(pid)
    return None if fields is None else Process(pid, int(fields[_STARTED]))


def kill(process: Process) -> bool:
    """SIGKILL. False: it was gone already."""
    return _send(process, signal.SIGKILL)


def stop(process: Process) -> bool:
    """SIGSTOP: it keeps its memory and sockets, and does nothing. False: it was gone already."""
    return _send(process, signal.SIGSTOP)


def resume(process: Process) -> bool:
    """SIGCONT. False: it is gone."""
    return _send(process, signal.SIGCONT)


def is_dead(process: Process) -> bool:
    """It has ended: nobody has its id, somebody else has, or its parent has not looked yet."""
    fields = _stat(process.pid)
    return fields is None or int(fields[_STARTED]) != process.started or fields[_STATE] in "ZX"


def is_stopped(process: Process) -> bool:
    """It is there and stands still."""
    fields = _stat(process.pid)
    return fields is not None and int(fields[_STARTED]) == process.started and fields[_STATE] == "T"


def _send(process: Process, number: signal.Signals) -> bool:
    """Through a descriptor of the process, so that its id can't change hands in between."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if is_dead(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
