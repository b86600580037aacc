"""Server-sent events out of bytes, however these were cut on their way.

The rules are those of the WHATWG HTML standard, 9.2.6: lines end with CR, LF or both; a line that
begins with a colon is a comment (a keep-alive); `data` lines of one event are joined; a blank line
ends an event; what has no data is no event.
"""

_BOM = b"\xef\xbb\xbf"


class SseSplitter:
    """Splits one stream. Whatever the bytes are, it neither raises nor keeps more than its limit.

    `overflowed`: an event or a line was longer than `max_event_bytes`; from then on nothing is
    read or kept.
    """

    __slots__ = ("_after_cr", "_begun", "_data", "_max", "_partial", "_size", "overflowed")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._partial = bytearray()
        """A line as far as it has come: nearly always none."""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes in `_data`."""
        self._after_cr = False
        """The next byte, if it is LF, belongs to an end of line that was already seen."""
        self._begun = False
        self.overflowed = False

    @property
    def held_bytes(self) -> int:
        """What is kept of an event that has not ended."""
        return len(self._partial) + self._size

    def feed(self, data: bytes) -> list[bytes]:
        """Mutates: these bytes came. Returns the data of each event that they completed."""
        if (
            data.startswith(b"data: ")
            and data.endswith(b"\n\n")
            and data.find(b"\n") == len(data) - 2
            and data.find(b"\r") < 0
            and not (self._partial or self._data or self._after_cr)
            and len(data) <= self._max
        ):
            self._begun = True
            return [data[6:-2]]  # one event in one segment: what servers send nearly always
        return self._split(data)

    def _split(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n") if data[:1] == b"\n" else data
        if self.overflowed or not data:
            return []
        events: list[bytes] = []
        lines = data.splitlines()  # of bytes: at CR, LF and CRLF, and nowhere else
        last = b"" if data[-1] in b"\r\n" else lines.pop()
        if lines and self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        for line in lines:
            self._take(line, events)
        self._partial += last
        self._after_cr = data[-1:] == b"\r"
        if self.held_bytes > self._max:
            self._overflow()
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data, self._size = [], 0
            return
        name, _, value = line.partition(b":")
        if name != b"data" or self.overflowed:
            return
        self._data.append(value.removeprefix(b" "))
        self._size += len(line) + 1
        if self._size > self._max:
            self._overflow()

    def _overflow(self) -> None:
        self.overflowed = True
        self._partial.clear()
        self._data, self._size = [], 0
