"""What the machine that we run on has."""

from .memory import available_bytes, give_back_freed_memory
from .own_folder import open_folder_remedy

__all__ = ["available_bytes", "give_back_freed_memory", "open_folder_remedy"]
