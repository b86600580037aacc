"""What to say of a folder that is to be ours alone, and that others can enter."""

import os
import re
import stat
from pathlib import Path

_OURS = re.compile(r"\d{12}\.kv|writable\.tmp|[\w.-]+\.sock")
"""Files that we put into such folders: segments of the store's disk tier, and sockets."""


def open_folder_remedy(path: Path) -> str:
    """What its user can do about it. Only a folder that holds nothing but what is ours may be shut:
    others need /tmp, or /etc, as it is."""
    try:
        facts = path.stat()
        ours = facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_ISVTX
        ours = ours and all(_OURS.fullmatch(entry.name) for entry in path.iterdir())
    except OSError:
        ours = False
    return "chmod 700 it" if ours else "choose a folder of its own"
