"""Finding the records of a segment file again, whatever happened to it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from antiphon.store.record import (
    ALIGNMENT,
    FIXED_BYTES,
    LIVE,
    REMOVED,
    Peek,
    RecordHeader,
    RecordProblem,
    decode_header,
    peek,
)

from .disk_calls import DiskCalls

_FIRST_BYTES = 4096
"""Read at once: most headers are shorter."""
_SEARCH_BYTES = 1 << 20
_COMMON = LIVE[:-1]


class FoundRecord(NamedTuple):
    """A record whose header is whole and whose bytes are all there (unread)."""

    at: int
    header: RecordHeader


@dataclass(slots=True)
class Scan:
    """What a segment holds. `end`: behind its last record that is whole; 0: there is none."""

    records: list[FoundRecord] = field(default_factory=list)
    end: int = 0
    skipped: Counter[RecordProblem] = field(default_factory=Counter)
    """What is there beside; a version of the program that is still to come may know better."""


def scan(calls: DiskCalls, fd: int, size: int) -> Scan:
    """Read the headers of a segment of `size` bytes. Raises `OSError`.

    Behind a damaged header it looks for the next one that is whole.
    """
    found = Scan()
    at = 0
    while at < size:
        header = _header_at(calls, fd, at)
        if isinstance(header, RecordProblem):
            found.skipped[header] += 1
            at = _next_magic(calls, fd, at + ALIGNMENT, size)
            continue
        end = at + header.record_bytes
        if end > size:
            break
        found.records.append(FoundRecord(at, header))
        found.end = at = end
    return found


def _header_at(calls: DiskCalls, fd: int, at: int) -> RecordHeader | RecordProblem:
    data = _read_some(calls, fd, at, _FIRST_BYTES)
    sizes = peek(data)
    if isinstance(sizes, Peek) and len(data) < sizes.header_bytes:
        data = _read_some(calls, fd, at, sizes.header_bytes)
    return decode_header(data)


def _read_some(calls: DiskCalls, fd: int, at: int, count: int) -> bytes:
    """So many bytes, or those that there are."""
    data = memoryview(bytearray(count))
    done = 0
    while done < count and (more := calls.read_at(fd, [data[done:]], at + done)) > 0:
        done += more
    return bytes(data[:done])


def _next_magic(calls: DiskCalls, fd: int, at: int, size: int) -> int:
    """Where the next record may begin, `at` or later; `size`: nowhere."""
    while at < size:
        data = _read_some(calls, fd, at, _SEARCH_BYTES + FIXED_BYTES)
        for offset in _magics(data):
            return at + offset
        at += _SEARCH_BYTES
    return size


def _magics(data: bytes) -> Iterator[int]:
    """Offsets of what looks like the beginning of a record."""
    at = data.find(_COMMON)
    while at >= 0:
        if at % ALIGNMENT == 0 and data[at : at + len(LIVE)] in (LIVE, REMOVED):
            yield at
        at = data.find(_COMMON, at + 1)
