"""Moving KV between processes of one host: shared regions, sealed pages, verified copies."""

from .descriptor import receive_fd, receive_fd_on_loop, send_fd
from .generations import PageGenerations
from .mapping import MappedRegion, Miss
from .region import OwnedRegion

__all__ = [
    "MappedRegion",
    "Miss",
    "OwnedRegion",
    "PageGenerations",
    "receive_fd",
    "receive_fd_on_loop",
    "send_fd",
]
