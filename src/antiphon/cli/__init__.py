"""The command line: the only reader of configuration files."""

from .app import main

__all__ = ["main"]
