"""What the machine that we run on has, how processes on it end, and files that are seen whole."""

from .memory import available_bytes, give_back_freed_memory
from .own_folder import open_folder_remedy
from .process_end import Terminated, die_with_parent, end_with_parent, terminable
from .whole_file import write_whole

__all__ = [
    "Terminated",
    "available_bytes",
    "die_with_parent",
    "end_with_parent",
    "give_back_freed_memory",
    "open_folder_remedy",
    "terminable",
    "write_whole",
]
