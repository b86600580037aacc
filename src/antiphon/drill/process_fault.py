"""Faults of a process: a signal, and the proof that it had its effect.

A process id may have been given to somebody else meanwhile, so a process is named by its id and the
time at which it started; a signal goes to that one or to nobody.
"""

import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

from antiphon.errors import PeerError
from antiphon.types import Seconds

_STATE, _USER, _SYSTEM, _STARTED = 0, 11, 12, 19
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


def terminate(process: Process) -> bool:
    """SIGTERM: it may end in order. False: it was gone already."""
    return _send(process, signal.SIGTERM)


def limit_files(process: Process, most_bytes: int) -> int | None:
    """No file that it writes may become longer, as if the disk were full.

    Returns the former limit (-1: none), to be set again; None: it is gone. Raises `PeerError` if
    the system does not let it be set.
    """
    if is_dead(process):
        return None
    try:
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
    except ProcessLookupError:
        return None
    except (PermissionError, ValueError) as error:
        raise PeerError(f"the files of process {process.pid} can't be limited: {error}") from None
    return soft


def file_limit(process: Process) -> int | None:
    """The longest that a file which it writes may become (-1: no limit); None: it is gone."""
    try:
        return None if is_dead(process) else resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[0]
    except ProcessLookupError:
        return None


def cpu_seconds(process: Process) -> Seconds | None:
    """What all its threads have computed so far; None: it is gone."""
    fields = _stat(process.pid)
    if fields is None or int(fields[_STARTED]) != process.started:
        return None
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")


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
