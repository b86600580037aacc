"""What a child writes, as lines that are safe to pass on: whole, of bounded length and rate."""

from collections.abc import Iterator

from antiphon.types import Seconds

MAX_LINE_BYTES = 8192
LINES_PER_S = 100.0
BURST_LINES = 1000.0
"""A traceback or the report of a crash comes in one go."""


class LogLines:
    """Cuts bytes into lines. Longer ones are cut off; what comes too fast is counted, not kept."""

    def __init__(self, now: Seconds) -> None:
        self._partial = b""
        self._in_long_line = False
        self._allowed = BURST_LINES
        self._at = now
        self._left_out = 0

    def feed(self, data: bytes, now: Seconds) -> list[str]:
        """The lines that `data` completes."""
        return [text for line in self._whole(data) for text in self._within_rate(line, now)]

    def end(self) -> list[str]:
        """What is left: a line without an end, and how many were left out."""
        lines = [_text(self._partial)] if self._partial else []
        self._partial = b""
        return [*self._summary(), *lines]

    def _whole(self, data: bytes) -> Iterator[bytes]:
        *ended, rest = data.split(b"\n")
        for piece in ended:
            line = self._partial + piece[: MAX_LINE_BYTES + 1 - len(self._partial)]
            self._partial = b""
            if not self._in_long_line:
                yield line
            self._in_long_line = False
        if not self._in_long_line:
            self._partial += rest[: MAX_LINE_BYTES + 1 - len(self._partial)]
        if len(self._partial) > MAX_LINE_BYTES:
            yield self._partial
            self._partial, self._in_long_line = b"", True

    def _within_rate(self, line: bytes, now: Seconds) -> Iterator[str]:
        self._allowed = min(BURST_LINES, self._allowed + (now - self._at) * LINES_PER_S)
        self._at = now
        if self._allowed < 1:
            self._left_out += 1
            return
        self._allowed -= 1
        yield from self._summary()
        yield _text(line)

    def _summary(self) -> list[str]:
        count, self._left_out = self._left_out, 0
        return [f"({count} lines left out: too many at once)"] if count else []


def _text(line: bytes) -> str:
    """Printable: a child must not move the cursor or change the colours of a terminal."""
    cut = " …" if len(line) > MAX_LINE_BYTES else ""
    text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip("\r")
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text) + cut
