"""A command that is tied to whoever started it."""

import os
import subprocess
import sys

from antiphon.live.supervisor.parent import ORPHANED
from antiphon.live.supervisor.with_parent import tied_to_caller

COMMAND = "import sys, signal; print('runs', *sys.argv[1:], flush=True); signal.pause()"
STARTER = f"""
import subprocess, sys
from antiphon.live.supervisor.with_parent import tied_to_caller
command = tied_to_caller([sys.executable, "-c", {COMMAND!r}, "a b", "c"])
subprocess.Popen(command).wait()
"""


def test_the_command_ends_when_its_parent_is_killed() -> None:
    """It alone holds the other end of the pipe then: that it is closed tells that it has ended."""
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"runs a b c\n"
        starter.kill()
        assert starter.stdout.read() == b""


def test_a_parent_that_is_gone_already_is_noticed() -> None:
    command = tied_to_caller([sys.executable, "-c", COMMAND])
    assert str(os.getpid()) in command
    others = [part if part != str(os.getpid()) else "1" for part in command]
    done = subprocess.run(others, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (ORPHANED, b"")
