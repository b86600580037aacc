"""The command line: the only reader of configuration files."""

import sys

__all__ = ["main"]

_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `antiphon` script, quiet if it is interrupted while it loads the rest."""
    try:
        from .app import main as run
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()
