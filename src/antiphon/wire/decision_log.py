"""A decision log as a file: JSON lines, a header and then one `core.recorder.Entry` a line.

    {"log":"antiphon-decisions","version":2,"setup":{"program":"0.1.0","config":{…},…}}
    {"machine":"scheduler","number":1,"method":"add","facts":{"request":{"kind":"Request",…},…}

The header says how the machines were built, so a log is all that a replay needs.

Types are restored from the kind that is written beside each value, out of the table `KINDS`.
Chunks repeat their request in every step: a request is written in full once, and later as
`{"ref": [id, attempt]}` for as long as its content is the same. Tenants' salts, digests of API
keys, are in it: the names of blocks follow from them, and decisions from those.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, BinaryIO

import msgspec

from antiphon import types
from antiphon.core.planner import Add, Decision, Flip, Observation, Take
from antiphon.core.recorded_run import RecordedRun, Setup
from antiphon.core.recorder import Earlier, Entry, Raised
from antiphon.errors import BugError, UsageError

_PLANNERS = (Observation, Decision, Add, Take, Flip)
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (*vars(types).values(), *_PLANNERS, Earlier, Raised)
    if isinstance(kind, type)
    and (is_dataclass(kind) or issubclass(kind, Enum) or kind is types.SequenceKey)
}
"""What a log may hold besides plain values and tuples of all these."""

_REMEMBERED_REQUESTS = 1024
_FLOATS = ("nan", "inf", "-inf")


_LOG, _VERSION = "antiphon-decisions", 2


class _Header(msgspec.Struct):
    log: str
    version: int


class _SetupHeader(_Header, forbid_unknown_fields=True):
    setup: Setup


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    machine: str
    number: int
    method: str
    facts: dict[str, Any]
    decision: Any


class DecisionLogWriter:
    """Writes entries to a binary file that is open for writing: the `write` of a `Recorder`.

    `begin` comes first. Does not flush and does not close.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._requests = _Requests()
        self._begun = False

    def begin(self, setup: Setup) -> None:
        """Write the header."""
        self._put(_SetupHeader(log=_LOG, version=_VERSION, setup=setup))
        self._begun = True

    def __call__(self, entry: Entry) -> None:
        """Append one line. Raises `BugError` for a value that no log can hold."""
        if not self._begun:
            raise BugError("a decision log begins with its header")
        facts = {name: self._encoded(value) for name, value in entry.facts}
        decision = self._encoded(entry.decision)
        self._put(
            _Line(
                machine=entry.machine,
                number=entry.number,
                method=entry.method,
                facts=facts,
                decision=decision,
            )
        )

    def _put(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")

    def _encoded(self, value: object) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return self._packed(value)
        if kind in (tuple, list):
            return [self._encoded(item) for item in value]  # pyright: ignore[reportGeneralTypeIssues]
        if KINDS.get(kind.__name__) is not kind:
            raise BugError(f"a decision log can't hold a {kind.__name__}")
        if isinstance(value, Decision):  # its moves are of several kinds: each with its own
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return {
                "kind": kind.__name__,
                "fields": {name: self._encoded(item) for name, item in named.items()},
            }
        tree = msgspec.to_builtins(value)
        packed = self._packed_request(tree) if kind is types.Request else self._packed(tree)
        return {"kind": kind.__name__, "value": packed}

    def _packed(self, tree: Any) -> Any:
        """The tree with requests shortened, and with floats that JSON lacks as `{"float": …}`."""
        match tree:
            case dict():
                return {
                    key: self._packed_request(item)
                    if key == "request" and isinstance(item, dict)
                    else self._packed(item)
                    for key, item in tree.items()
                }
            case list() | tuple():
                return [self._packed(item) for item in tree]
            case float() if not isfinite(tree):
                return {"float": str(tree)}
        return tree

    def _packed_request(self, tree: dict[str, Any]) -> dict[str, Any]:
        name = (tree["id"], tree["attempt"])
        if self._requests.get(name) == tree:
            return {"ref": name}
        self._requests.put(name, tree)
        return self._packed(tree)


class _Requests:
    """The requests that were written in full last: writer and reader remember the same ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[str, Any]] = {}

    def get(self, name: tuple[str, int]) -> dict[str, Any] | None:
        return self._known.get(name)

    def put(self, name: tuple[str, int], tree: dict[str, Any]) -> None:
        self._known.pop(name, None)
        self._known[name] = tree
        if len(self._known) > _REMEMBERED_REQUESTS:
            del self._known[next(iter(self._known))]


def read_decision_log(lines: Iterable[bytes], source: str = "decision log") -> RecordedRun:
    """The run that a log holds; its entries are read one by one. `source` names it in errors.

    Here and later raises `UsageError` with the number of the line that is malformed or holds an
    unknown kind.
    """
    numbered = enumerate(lines, 1)
    try:
        _, line = next(numbered)
        setup = _read_header(line)
    except StopIteration:
        raise UsageError(f"{source}: line 1: the header is missing") from None
    except (msgspec.MsgspecError, RecursionError, _Malformed) as error:
        raise UsageError(f"{source}: line 1: {error}") from None
    return RecordedRun(setup, _entries(numbered, source))


def _entries(numbered: Iterable[tuple[int, bytes]], source: str) -> Iterator[Entry]:
    reader = _Reader()
    for number, line in numbered:
        try:
            yield reader.entry(line)
        except (msgspec.MsgspecError, RecursionError, _Malformed) as error:
            raise UsageError(f"{source}: line {number}: {error}") from None


class _Malformed(Exception):
    """The line is JSON, but not an entry."""


def _read_header(line: bytes) -> Setup:
    header = msgspec.json.decode(line, type=_Header)
    if header.log != _LOG:
        raise _Malformed(f"not a decision log: {header.log!r}")
    if header.version != _VERSION:
        raise _Malformed(f"version {header.version}, but this program reads {_VERSION}")
    return msgspec.json.decode(line, type=_SetupHeader).setup


class _Reader:
    def __init__(self) -> None:
        self._requests = _Requests()

    def entry(self, line: bytes) -> Entry:
        parsed = msgspec.json.decode(line, type=_Line)
        facts = tuple((name, self._decoded(value)) for name, value in parsed.facts.items())
        return Entry(
            machine=parsed.machine,
            number=parsed.number,
            method=parsed.method,
            facts=facts,
            decision=self._decoded(parsed.decision),
        )

    def _decoded(self, value: Any) -> object:
        if isinstance(value, list):
            return tuple(self._decoded(item) for item in value)
        if not isinstance(value, dict) or value.keys() == {"float"}:
            return self._unpacked(value)
        if value.keys() == {"kind", "fields"}:
            return self._decoded_by_field(value["kind"], value["fields"])
        if value.keys() != {"kind", "value"}:
            raise _Malformed(f"a value has kind and value, not {sorted(value)}")
        name, tree = value["kind"], value["value"]
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise _Malformed(f"unknown kind {name!r}")
        if kind is types.Request:
            return msgspec.convert(self._unpacked_request(tree), kind)
        return msgspec.convert(self._unpacked(tree), kind)

    def _decoded_by_field(self, name: Any, tree: Any) -> object:
        """Its fields are of any kind: a decision is compared, and never told to a machine."""
        kind: Any = Decision
        if name != kind.__name__:
            raise _Malformed(f"unknown kind {name!r} of fields")
        if not isinstance(tree, dict) or tree.keys() != {field.name for field in fields(kind)}:
            raise _Malformed(f"a {name} has other fields")
        return kind(**{field: self._decoded(value) for field, value in tree.items()})

    def _unpacked(self, tree: Any) -> Any:
        """Undoes `DecisionLogWriter._packed`, in the same order, so that references agree."""
        match tree:
            case {"float": text, **rest} if not rest:
                if text not in _FLOATS:
                    raise _Malformed(f"a float out of JSON's reach is one of {_FLOATS}")
                return float(text)
            case dict():
                return {
                    key: self._unpacked_request(item)
                    if key == "request" and isinstance(item, dict)
                    else self._unpacked(item)
                    for key, item in tree.items()
                }
            case list():
                return [self._unpacked(item) for item in tree]
        return tree

    def _unpacked_request(self, tree: Any) -> Any:
        match tree:
            case {"ref": [str(id), int(attempt)], **rest} if not rest:
                request = self._requests.get((id, attempt))
                if request is None:
                    raise _Malformed(f"request {id!r}, attempt {attempt}, was not written before")
                return request
            case {"id": str(id), "attempt": int(attempt)}:
                request = self._unpacked(tree)
                self._requests.put((id, attempt), request)
                return request
        raise _Malformed("a request needs an id and an attempt")
