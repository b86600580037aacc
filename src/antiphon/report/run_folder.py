"""A run on disk: everything that came of it, so that it can be looked at again.

    DIR/run.json          what was run (`LoadRun`)
    DIR/requests.jsonl    one `CallRecord` a line, in the order in which calls ended
    DIR/summary.json      what came of it (`RunSummary`); not there: the run was interrupted
    DIR/report.html       the same for people

A search for goodput, or over targets, has `search.json` and one such folder for each probe.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import BinaryIO, TypeVar

from antiphon.errors import BugError, UsageError
from antiphon.host import write_whole
from antiphon.types import CallRecord, LoadRun

from .run_summary import RunSummary, summarise
from .strict_json import WrongJson, decode, decode_file, encode, encode_file

RUN, REQUESTS, SUMMARY, REPORT, SEARCH = FILES = (
    "run.json",
    "requests.jsonl",
    "summary.json",
    "report.html",
    "search.json",
)
_PROBES = ("rate-*", "scale-*")
"""How the folders of a search's probes are called: what is named otherwise is somebody else's."""
_MAX_LINE_BYTES = 2**26
_MAX_FILE_BYTES = 2**28

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """A run that was read from its folder. `whole`: it was not interrupted."""

    folder: Path
    run: LoadRun
    records: tuple[CallRecord, ...]
    summary: RunSummary
    whole: bool = True


class RunWriter:
    """Keeps a run while it goes on: calls that have ended stay, whatever comes then.

    Raises `UsageError` if the folder can't be written, or holds another run and `overwrite` is not
    given. A line is with the operating system when `add` returns.
    """

    def __init__(self, folder: Path, run: LoadRun, *, overwrite: bool = False) -> None:
        self._folder = folder
        take_folder(folder, overwrite=overwrite)
        write_file(folder / RUN, run)
        self._lines = _opened(folder / REQUESTS)

    def add(self, record: CallRecord) -> None:
        """Append a call that has ended. Raises `BugError` for one whose numbers make no sense."""
        if flaw := flaw_of(record):
            raise BugError(f"call {record.number}: {flaw}")
        try:
            self._lines.write(encode(record) + b"\n")
            self._lines.flush()
        except OSError as error:
            raise _cannot_write(self._folder / REQUESTS, error) from None

    def finish(self, run: LoadRun, summary: RunSummary) -> None:
        """Keep what is known at the end, and close. Without this the run counts as interrupted."""
        self.close()
        write_file(self._folder / RUN, run)
        write_file(self._folder / SUMMARY, summary)

    def interrupted(self, run: LoadRun) -> None:
        """Keep what is known of a run that was broken off, and close."""
        self.close()
        write_file(self._folder / RUN, run)

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; may be called again."""
        self._lines.close()


def save_run(
    folder: Path,
    run: LoadRun,
    records: Iterable[CallRecord],
    summary: RunSummary,
    *,
    overwrite: bool = False,
) -> None:
    """Write a run that is over. Raises like `RunWriter`."""
    with RunWriter(folder, run, overwrite=overwrite) as writer:
        for record in records:
            writer.add(record)
        writer.finish(run, summary)


def open_run(folder: Path) -> SavedRun:
    """What `save_run` or a `RunWriter` has written.

    An interrupted run lasted until the last call ended that it has; its summary is made now.
    Raises `UsageError` that names the file and, in it, the line and the field.
    """
    run = read_file(folder / RUN, LoadRun)
    whole = (folder / SUMMARY).exists()
    records = tuple(_records(folder / REQUESTS, whole=whole))
    if not whole:
        last_s = max((record.ended_at_s for record in records), default=0.0)
        run = replace(run, duration_s=min(run.duration_s, last_s))
        return SavedRun(
            folder=folder, run=run, records=records, summary=summarise(run, records), whole=False
        )
    summary = read_file(folder / SUMMARY, RunSummary)
    if summary.calls + summary.warmup_calls != len(records):
        raise UsageError(
            f"{folder / SUMMARY}: calls: is of {summary.calls + summary.warmup_calls} calls, but "
            f"{REQUESTS} has {len(records)}; without {SUMMARY} it is made again"
        )
    return SavedRun(folder=folder, run=run, records=records, summary=summary)


def check_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Raises `UsageError` if there is a run or a search, unless it may be overwritten."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder}: can't be written: a file is there")
        held = [name for name in FILES if (folder / name).exists()]
        held += [f"{probe.name}/" for probe in probe_folders(folder)]
    except OSError as error:
        raise _cannot_write(folder, error) from None
    if held and not overwrite:
        raise UsageError(
            f"{folder}: holds another run ({', '.join(held[:5])}); name another folder, or say "
            "that it may be overwritten (--overwrite)"
        )


def take_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Make a folder for a run or a search, without another one in it.

    Raises `UsageError` if that can't be, or if there is one and `overwrite` is not given; with it,
    that one's files are removed.
    """
    check_folder(folder, overwrite=overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def write_file(path: Path, value: object) -> None:
    """Write one of a folder's JSON files: it is either there whole or as it was before."""
    write_whole(path, encode_file(value))


def read_file(path: Path, kind: type[T]) -> T:
    """What `write_file` wrote. Raises `UsageError` that names the file and the field."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"{path}: is larger than {_MAX_FILE_BYTES} bytes")
        return decode_file(path.read_bytes(), kind)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
    except WrongJson as error:
        raise UsageError(f"{path}: {error}") from None


def flaw_of(record: CallRecord) -> str | None:
    """The first field that no call can have, and why; None: all are sound."""
    for name in ("number", "session", "turn", "prompt_tokens", "output_tokens", "cached_tokens"):
        if (getattr(record, name) or 0) < 0:
            return f"{name}: is negative"
    for name in ("due_at_s", "sent_at_s", "ended_at_s"):
        time = getattr(record, name)
        if not (isfinite(time) and time >= 0):
            return f"{name}: must be a number of seconds from the run's start, not {time}"
    stamps = record.token_at_s
    if not all(map(isfinite, stamps)) or any(a > b for a, b in pairwise(stamps)):
        return "token_at_s: times must be in order"
    if stamps and not record.sent_at_s <= stamps[0] <= stamps[-1] <= record.ended_at_s:
        return "token_at_s: lies outside the call"
    if record.ended_at_s < record.sent_at_s:
        return "ended_at_s: is before sent_at_s"
    return None


def _records(path: Path, *, whole: bool) -> Iterator[CallRecord]:
    """All lines; but not a last one that is cut off, if the run was interrupted."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                if not line.endswith(b"\n") and not whole and len(line) <= _MAX_LINE_BYTES:
                    return
                yield _record(f"{path}, line {number}", line)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None


def _record(where: str, line: bytes) -> CallRecord:
    if not line.endswith(b"\n"):
        long = len(line) > _MAX_LINE_BYTES
        problem = f"is longer than {_MAX_LINE_BYTES} bytes" if long else "is cut off"
        raise UsageError(f"{where}: {problem}")
    try:
        record = decode(line, CallRecord)
    except WrongJson as error:
        raise UsageError(f"{where}: {error}") from None
    if flaw := flaw_of(record):
        raise UsageError(f"{where}: {flaw}")
    return record


def _clear(folder: Path) -> None:
    """Remove a run and its probes, and nothing else that lies there."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    for probe in probe_folders(folder):
        _clear(probe)
        if not any(probe.iterdir()):
            probe.rmdir()


def probe_folders(folder: Path) -> list[Path]:
    """The runs of a search that lie there, by name."""
    named = [probe for pattern in _PROBES for probe in folder.glob(pattern)]
    return sorted(probe for probe in named if (probe / RUN).exists() and not probe.is_symlink())


def holds_run(folder: Path) -> bool:
    """Whether a run or a search is kept in it, not in folders of it."""
    return any((folder / name).exists() for name in (RUN, SEARCH))


def runs_within(folder: Path) -> list[str]:
    """Names of the folders in it, but for a search's own, that hold runs, or folders with runs."""
    if not folder.is_dir():
        return []
    probes = probe_folders(folder)
    inner = [one for one in _folders(folder) if one not in probes]
    return [f"{one.name}/" for one in inner if any(map(holds_run, (one, *_folders(one))))]


def _folders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink())


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: can't be written: {error.strerror or error}")
