"""What a command that was interrupted says to its shell."""

from antiphon.host import Terminated


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code: 130 after Ctrl-C, 143 after SIGTERM."""
    return 143 if isinstance(interrupt, Terminated) else 130
