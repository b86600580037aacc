"""What a command that was interrupted says to its shell."""

from antiphon.host import Terminated

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes: what a shell makes of Ctrl-C and of SIGTERM."""


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that was ended by it."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED
