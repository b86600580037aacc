"""A command that ends when the process that started it does, however that ends.

    python -m antiphon.live.supervisor.with_parent PARENT_PID COMMAND …

Linux sends SIGTERM to the command when its parent's main thread is gone (PR_SET_PDEATHSIG outlives
exec), so that a server ends in order though its parent was killed. Elsewhere it just runs.
"""

import os
import signal
import sys
from collections.abc import Sequence

from antiphon.host import die_with_parent

from .parent import ORPHANED

_MODULE = "antiphon.live.supervisor.with_parent"


def tied_to_caller(command: Sequence[str]) -> list[str]:
    """The command line that runs `command`, and ends it with the process that calls this now. It
    must be started by that process's main thread."""
    return [sys.executable, "-m", _MODULE, str(os.getpid()), *command]


def main() -> None:
    """Become the command, unless the parent is gone already."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(ORPHANED)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
