"""What the machine that we run on has."""

from .memory import available_bytes

__all__ = ["available_bytes"]
