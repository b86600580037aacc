"""What the machine that we run on has, how processes on it end, and files that are seen whole."""

from .folder_lock import locked
from .memory import available_bytes, give_back_freed_memory
from .own_folder import open_folder_remedy
from .port_owner import port_owner, taken_port
from .process_end import Terminated, die_with_parent, end_with_parent, terminable
from .shared_code import shared
from .whole_file import write_whole

__all__ = [
    "Terminated",
    "available_bytes",
    "die_with_parent",
    "end_with_parent",
    "give_back_freed_memory",
    "locked",
    "open_folder_remedy",
    "port_owner",
    "shared",
    "taken_port",
    "terminable",
    "write_whole",
]
