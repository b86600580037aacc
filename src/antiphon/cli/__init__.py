"""The command line: the only reader of the environment and of configuration files."""

from .app import main

__all__ = ["main"]
