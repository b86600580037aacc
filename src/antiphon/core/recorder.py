"""Decisions on record: what a state machine was told, what it decided, and whether it would again.

    live:    caller ──► Recorder ──► machine          each call becomes an Entry
    later:   entries ──► replay ──► a fresh machine   same facts in; same decisions out?

This works because machines in `core` get time, chance and identity as arguments: an Entry holds
all that a decision may depend on, but for how the machine was built (`core.recorded_run.Setup`).
Several machines may share a record: each entry names its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from types import UnionType
from typing import NewType, TypeVar, cast, get_args, get_origin, get_type_hints

from antiphon.errors import AntiphonError, UsageError

Machine = TypeVar("Machine")


@dataclass(frozen=True, slots=True)
class Earlier:
    """In an Entry's facts: the very object that the machine returned last from `method`.

    A plan comes back with its result. It is not written twice, and at replay the machine gets its
    own plan back, as in the run.
    """

    method: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The decision of a call that ended in one of our exceptions."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Call number `number` of a machine. `facts` are its arguments by name, `now` among them."""

    machine: str
    number: int
    method: str
    facts: tuple[tuple[str, object], ...]
    decision: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replayed decision first departs from the recorded one.

    `path` leads to it within the decision, for example `.chunks[2].tokens[0]`; empty means the
    decision as a whole.
    """

    machine: str
    number: int
    method: str
    path: str
    recorded: object
    replayed: object


class Recorder:
    """Stands in for a machine: passes every call on, and writes those of `methods` as Entries.

    All else (views, properties) is the machine's own. `write` gets each entry right after its call
    and before the caller sees the decision; what it raises reaches the caller.
    """

    def __init__(
        self, name: str, machine: object, methods: Iterable[str], write: Callable[[Entry], None]
    ) -> None:
        self._name = name
        self._machine = machine
        self._write = write
        self._written = 0
        self._latest: dict[str, object] = {}
        for method in methods:
            setattr(self, method, self._recording(method))

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)

    def _recording(self, name: str) -> Callable[..., object]:
        method = getattr(self._machine, name)
        shape = signature(method)

        def call(*args: object, **kwargs: object) -> object:
            given = shape.bind(*args, **kwargs).arguments.items()
            facts = tuple((key, self._fact(value)) for key, value in given)
            try:
                decision = method(*args, **kwargs)
            except AntiphonError as error:
                self._note(name, facts, Raised(type(error).__name__, str(error)))
                raise
            self._latest[name] = decision
            self._note(name, facts, decision)
            return decision

        return call

    def _fact(self, value: object) -> object:
        if is_dataclass(value):
            for method, decision in self._latest.items():
                if decision is value:
                    return Earlier(method)
        return value

    def _note(self, method: str, facts: tuple[tuple[str, object], ...], decision: object) -> None:
        self._written += 1
        decision = tuple(decision) if isinstance(decision, list) else decision
        self._write(
            Entry(
                machine=self._name,
                number=self._written,
                method=method,
                facts=facts,
                decision=decision,
            )
        )


def recorded(
    name: str, machine: Machine, methods: Iterable[str], write: Callable[[Entry], None]
) -> Machine:
    """A `Recorder` around the machine that type checkers take for the machine itself."""
    return cast(Machine, Recorder(name, machine, methods, write))


def replay(entries: Iterable[Entry], machines: Mapping[str, object]) -> Iterator[Difference]:
    """Tell `machines`, by name, fresh and built like the recorded ones, the same facts.

    Yields for each entry that was decided otherwise where it first differs; the first of them is
    the cause, later ones may be its consequences. Mutates the machines as it goes. Raises
    `UsageError` for an entry that does not fit its machine.
    """
    latest: dict[str, dict[str, object]] = {name: {} for name in machines}
    for entry in entries:
        if entry.machine not in machines:
            raise UsageError(f"entry {entry.number}: there is no machine {entry.machine!r}")
        decisions = latest[entry.machine]
        call = _call(machines[entry.machine], entry, decisions)
        try:
            decision = decisions[entry.method] = call()
        except AntiphonError as error:
            decision = Raised(type(error).__name__, str(error))
        if found := first_difference(entry.decision, decision):
            path, recorded, replayed = found
            yield Difference(
                machine=entry.machine,
                number=entry.number,
                method=entry.method,
                path=path,
                recorded=recorded,
                replayed=replayed,
            )


def _call(machine: object, entry: Entry, latest: Mapping[str, object]) -> Callable[[], object]:
    """The entry's call on `machine`, checked but not made: entries may come from a file."""
    where = f"entry {entry.number}"
    method = None if entry.method.startswith("_") else getattr(machine, entry.method, None)
    if not callable(method):
        raise UsageError(f"{where}: {type(machine).__name__} has no method {entry.method!r}")
    facts: dict[str, object] = {}
    for name, value in entry.facts:
        if isinstance(value, Earlier):
            if value.method not in latest:
                raise UsageError(f"{where}: refers to a decision of {value.method!r}: none came")
            value = latest[value.method]
        facts[name] = value
    try:
        bound = signature(method).bind(**facts)
    except TypeError as error:
        raise UsageError(f"{where}: {entry.method}: {error}") from None
    hints = get_type_hints(method)
    for name, value in bound.arguments.items():
        if name in hints and not _fits(value, hints[name]):
            raise UsageError(f"{where}: {entry.method}: {name} can't be a {type(value).__name__}")
    return lambda: method(*bound.args, **bound.kwargs)


def _fits(value: object, hint: object) -> bool:
    """Whether `value` is of the type that `hint` names, looked at from outside."""
    if isinstance(hint, NewType):
        return _fits(value, hint.__supertype__)
    if isinstance(hint, type):
        return isinstance(value, int | float if hint is float else hint)
    origin = get_origin(hint)
    if isinstance(origin, type) and origin is not UnionType:
        return isinstance(value, origin)
    kinds = get_args(hint)
    return not kinds or any(_fits(value, kind) for kind in kinds)


def first_difference(recorded: object, replayed: object) -> tuple[str, object, object] | None:
    """Path and both values where two decisions first differ; None: they are the same.

    Compares by content down to the leaves, also types that compare by identity (`Request`). A list
    equals a tuple of the same items; NaN equals NaN.
    """
    if recorded is replayed:
        return None
    if is_dataclass(recorded) and type(recorded) is type(replayed):
        for field in fields(recorded):
            ours, theirs = getattr(recorded, field.name), getattr(replayed, field.name)
            if found := first_difference(ours, theirs):
                return (f".{field.name}{found[0]}", *found[1:])
        return None
    if isinstance(recorded, tuple | list) and isinstance(replayed, tuple | list):
        return _difference_in_sequence(recorded, replayed)
    both_nan = recorded != recorded and replayed != replayed
    return None if recorded == replayed or both_nan else ("", recorded, replayed)


def _difference_in_sequence(
    recorded: Sequence[object], replayed: Sequence[object]
) -> tuple[str, object, object] | None:
    for place, (ours, theirs) in enumerate(zip(recorded, replayed, strict=False)):
        if found := first_difference(ours, theirs):
            return (f"[{place}]{found[0]}", *found[1:])
    return None if len(recorded) == len(replayed) else ("", recorded, replayed)
