"""Fault schedules as people write them: TOML, one table a fault.

seed = 7

[[fault]]
every = "30s"               # or at = "10s", or after-event = "offer" with occurrence = 3
target = "random"           # a worker's id, a role, random, gateway, store
action = "stop"
for = "5s"
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from antiphon.core.draws import LARGEST_SEED
from antiphon.errors import UsageError
from antiphon.types import Role, Seconds

from .fault import At, Boundary, Crash, Cut, Slow, Stall, When
from .schedule import (
    ACTION_NAMES,
    GATEWAY,
    STORE,
    AnyWorker,
    Corrupt,
    CutKv,
    Drain,
    Every,
    FaultSchedule,
    FillDisk,
    Garble,
    GarbleKv,
    Lag,
    Restart,
    Resume,
    ScheduledAction,
    ScheduleEntry,
    Target,
)
from .toml_table import Table, WrongValueError, toml_text

MOST_ENTRIES = 1000
_TRIGGERS = ("at", "every", "after-event")
_WORKER = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@dataclass(frozen=True, slots=True)
class FaultPlanFile:
    """What a file of a fault plan holds. `load`: its [load] table, not looked at here."""

    schedule: FaultSchedule
    load: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_schedule(
    text: str,
    file: str,
    seed: int | None = None,
    *,
    events: Sequence[Boundary] = tuple(Boundary),
) -> FaultPlanFile:
    """The plan in `text`, which was read from `file`; `seed` goes over the file's own. `events`:
    those that are named to who writes one that is none.

    Raises `UsageError` that names the file, the fault's number and the key, and says what may be
    written there.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: no TOML: {error}") from None
    try:
        top = Table(tree)
        written = top.count("seed", 0, 0, LARGEST_SEED)
        load, faults = top.table("load"), top.tables("fault")
        top.finish()
        if not 1 <= len(faults) <= MOST_ENTRIES:
            raise WrongValueError("fault", f"1 to {MOST_ENTRIES} tables [[fault]] are needed")
    except WrongValueError as error:
        raise UsageError(f"{file}: {error}") from None
    entries = read_entries(faults, file, events=events)
    return FaultPlanFile(FaultSchedule(seed if seed is not None else written or 0, entries), load)


def read_entries(
    faults: Sequence[Mapping[str, Any]],
    file: str,
    *,
    events: Sequence[Boundary] = tuple(Boundary),
    actions: Sequence[str] = tuple(ACTION_NAMES.values()),
) -> tuple[ScheduleEntry, ...]:
    """The tables [[fault]] of a file. `actions`: those that whoever asks can carry out.

    Raises `UsageError` as `read_schedule` does.
    """
    can = _Can(tuple(events), tuple(actions))
    return tuple(_entry(file, number, one, can) for number, one in enumerate(faults, start=1))


@dataclass(frozen=True, slots=True)
class _Can:
    """What is named to who writes something else: all that there is where it is played."""

    events: tuple[Boundary, ...]
    actions: tuple[str, ...]


def _entry(file: str, number: int, fields: Mapping[str, Any], can: _Can) -> ScheduleEntry:
    try:
        table = Table(fields)
        trigger = _trigger(table, can.events)
        name = _action_name(table, can.actions)
        action, target = _KINDS[name].build(table), _target(table, name)
        table.finish()
    except WrongValueError as error:
        raise UsageError(f"{file}: fault {number}: {error}") from None
    return ScheduleEntry(trigger, target, action)


def _trigger(table: Table, events: Sequence[Boundary]) -> At | Every | When:
    at, every = table.seconds("at"), table.seconds("every", low=0.1)
    event = table.text("after-event")
    given = [
        key for key, value in zip(_TRIGGERS, (at, every, event), strict=True) if value is not None
    ]
    if len(given) != 1:
        what = " and ".join(given) or "none"
        raise WrongValueError("at", f"exactly one of {', '.join(_TRIGGERS)} is needed, not {what}")
    if every is not None:
        jitter = table.number("jitter", 0.0, 0.0, 1.0)
        assert jitter is not None
        return Every(every, jitter, table.count("count", None, 1, 10**6))
    if at is not None:
        return At(at)
    occurrence = table.count("occurrence", 1, 1, 10**9)
    assert occurrence is not None
    if event not in list(Boundary):
        known = ", ".join(sorted(events))
        raise WrongValueError("after-event", f'"{event}" is no event: known are {known}')
    return When(Boundary(event), occurrence)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How an action is read, and what it can hit."""

    build: Callable[[Table], ScheduledAction]
    workers: bool = True
    nodes: tuple[str, ...] = (GATEWAY, STORE)


def _needed(table: Table, key: str) -> Seconds:
    value = table.seconds(key, low=0.01)
    if value is None:
        raise WrongValueError(key, 'this action needs it, such as "5s"')
    return value


def _stall(table: Table) -> Stall:
    length_s = table.seconds("for", low=0.01)
    return Stall(inf if length_s is None else length_s)


def _slow(table: Table) -> Slow:
    factor = table.number("factor", None, 1.1, 100.0)
    if factor is None:
        raise WrongValueError("factor", "this action needs it: how many times slower, such as 4")
    return Slow(factor, _needed(table, "for"))


_KINDS: Mapping[str, _Kind] = {
    "kill": _Kind(lambda _: Crash(None)),
    "stop": _Kind(_stall),
    "resume": _Kind(lambda _: Resume()),
    "slow": _Kind(_slow),
    "cut": _Kind(lambda _: Cut(), nodes=(GATEWAY,)),
    "garble": _Kind(lambda _: Garble(), nodes=()),
    "cut-kv": _Kind(lambda _: CutKv(), nodes=()),
    "garble-kv": _Kind(lambda _: GarbleKv(), nodes=()),
    "delay": _Kind(
        lambda table: Lag(_needed(table, "by"), _needed(table, "for")), nodes=(GATEWAY,)
    ),
    "corrupt": _Kind(lambda _: Corrupt(), workers=False, nodes=(STORE,)),
    "fill-disk": _Kind(
        lambda table: FillDisk(_needed(table, "for")), workers=False, nodes=(STORE,)
    ),
    "drain": _Kind(lambda table: Drain(_needed(table, "for")), nodes=()),
    "restart": _Kind(lambda _: Restart()),
}


def _action_name(table: Table, actions: Sequence[str]) -> str:
    name = table.text("action")
    if name is None or name not in actions:
        what = "it is missing" if name is None else f"{toml_text(name)} is none here"
        raise WrongValueError("action", f"{what}: must be one of {', '.join(actions)}")
    return name


def _target(table: Table, name: str) -> Target:
    kind = _KINDS[name]
    only = kind.nodes[0] if not kind.workers and len(kind.nodes) == 1 else None
    text = table.text("target", only)
    may = [*(["a worker's id", *Role, "random"] if kind.workers else []), *kind.nodes]
    wrong = f"{name} can hit {', '.join(map(str, may))}"
    if text is None:
        raise WrongValueError("target", f"it is missing: {wrong}")
    if text in (GATEWAY, STORE):
        if text not in kind.nodes:
            raise WrongValueError("target", f'not "{text}": {wrong}')
        return text
    if not kind.workers or not _WORKER.fullmatch(text):
        raise WrongValueError("target", f'not "{text}": {wrong}')
    if text == "random":
        return AnyWorker()
    return AnyWorker(Role(text)) if text in list(Role) else text
