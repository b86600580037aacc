"""The arrays that one connection's thread works in: made once, none for each slice."""

import numpy as np

from antiphon.core.transfer import MOST_ROWS

from .frames import HEAD_WORDS, REPLY_BYTES
from .vectored_io import new_message


class SliceRoom:
    """`words` uint64: a request's head and `rows` [MOST_ROWS, 2]. `reply` uint8: a reply's head
    and `before`, the first verdicts; `after`: the last ones; `verdicts`: what both and checksums
    come to. `areas` [MOST_ROWS + 1, 2], `message`: for system calls.
    """

    def __init__(self) -> None:
        self.words = np.zeros(HEAD_WORDS + 2 * MOST_ROWS, np.uint64)
        self.head = self.words[:HEAD_WORDS]
        self.rows = self.words[HEAD_WORDS:].reshape(MOST_ROWS, 2)
        self.reply = np.zeros(REPLY_BYTES + MOST_ROWS, np.uint8)
        self.before = self.reply[REPLY_BYTES:]
        self.after = np.zeros(MOST_ROWS, np.uint8)
        self.verdicts = np.zeros(MOST_ROWS, np.uint8)
        self.areas = np.zeros((MOST_ROWS + 1, 2), np.uint64)
        self.message = new_message()
