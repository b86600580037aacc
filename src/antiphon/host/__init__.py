"""What the machine that we run on has."""

from .memory import available_bytes
from .own_folder import open_folder_remedy

__all__ = ["available_bytes", "open_folder_remedy"]
