"""An owner in a process of its own, which reassigns its pages as fast as it can until it is killed.

    python owner_process.py SOCKET_FD PAGES PAGE_BYTES CORRUPT_EVERY

Sends its region's descriptor first. The content of a page follows from its number and generation
(`content_of`), so that a reader knows what an offer promises without being told. Every
CORRUPT_EVERY-th time (0: never) a word changes after the page was sealed, as in broken memory.
"""

import socket
import sys
from itertools import count

import numpy as np
import numpy.typing as npt

from antiphon.store.transfer import OwnedRegion
from antiphon.types import KvShape


def content_of(page: int, generation: int, page_bytes: int) -> npt.NDArray[np.uint64]:
    """What lies in a page that was sealed under this generation."""
    return np.full(page_bytes // 8, (page << 48) + generation, np.uint64)


def shape_of(pages: int, page_bytes: int) -> KvShape:
    return KvShape(
        layout="stress", page_tokens=16, block_tokens=64, page_bytes=page_bytes, pages=pages
    )


def reassign(owner: OwnedRegion, page: int, *, corrupt: bool) -> None:
    """One life of a page: odd, written, sealed."""
    words = owner.content.view(np.uint64).reshape(owner.shape.pages, -1)[page]
    owner.begin_write([page])
    generation = int(owner.generations[page]) + 1
    words[:] = content_of(page, generation, owner.shape.page_bytes)
    owner.seal([page])
    if corrupt:
        words[generation % len(words)] ^= np.uint64(1)


def main() -> None:
    fd, pages, page_bytes, corrupt_every = map(int, sys.argv[1:])
    owner = OwnedRegion(shape_of(pages, page_bytes))
    for page in range(pages):
        reassign(owner, page, corrupt=False)
    with socket.socket(fileno=fd) as sock:
        socket.send_fds(sock, [b"."], [owner.fd])
        for turn in count():
            reassign(owner, turn % pages, corrupt=bool(corrupt_every) and turn % corrupt_every == 0)


if __name__ == "__main__":
    main()
