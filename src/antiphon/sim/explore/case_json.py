"""A case as JSON: a set-up, its family and the law that it breaks, to be run again.

Every dataclass says what it `is` and names the fields that are not as usual; nothing else is needed
to read it back, whatever else a later version draws from the same seed.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints

from antiphon.errors import UsageError
from antiphon.types import SequenceKey

from ..cluster_setup import ClusterSetup
from .drawn_cluster import Family
from .names import class_of

_SCALARS = {int: (int,), float: (int, float), str: (str,), bool: (bool,), bytes: (bytes,)}


@dataclass(frozen=True, slots=True)
class Case:
    """What was found, and is to be run again. `law`: what it broke then."""

    family: Family
    setup: ClusterSetup
    law: str
    problem: str


def case_text(case: Case) -> str:
    """`read_case` reads it back."""
    return json.dumps(_plain(case), indent=1) + "\n"


def read_case(text: str) -> Case:
    """The case that `case_text` wrote. Raises `UsageError` that names what is wrong with it."""
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise UsageError(f"it is no JSON: {error}") from error
    if not isinstance(plain, dict) or plain.get("is") != Case.__name__:
        raise UsageError("it is no case that `antiphon sim explore -o DIR` wrote")
    case = _built(Case, plain)
    if not isinstance(case.setup, ClusterSetup) or not isinstance(case.family, Family):
        raise UsageError("its setup is no ClusterSetup, or its family no Family")
    return case


def unusual(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if getattr(value, field.name) != _default(field)
    }


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return {"is": type(value).__name__, "value": value.value}
        case bytes():
            return {"bytes": value.hex()}
        case Mapping():
            return {"pairs": [[_plain(key), _plain(one)] for key, one in value.items()]}
        case _ if is_dataclass(value):
            named = {name: _plain(one) for name, one in unusual(value).items()}
            return {"is": type(value).__name__, **named}
        case SequenceKey(request, sequence):
            return {"is": SequenceKey.__name__, "request": request, "sequence": sequence}
        case tuple() | list():
            return [_plain(one) for one in value]
        case _:
            return value


def _typed(plain: Any) -> Any:
    match plain:
        case {"is": str(name)}:
            return _built(class_of(name), plain)
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
        case {"pairs": [*pairs]}:
            return {_typed(key): _typed(one) for key, one in pairs}
        case dict():
            raise UsageError(f'an object without "is", "bytes" or "pairs": {json.dumps(plain)}')
        case list():
            return tuple(map(_typed, plain))
        case _:
            return plain


def _built(kind: type, plain: Mapping[str, Any]) -> Any:
    values = {name: _typed(one) for name, one in plain.items() if name != "is"}
    for name, hint in get_type_hints(kind).items():
        allowed = _SCALARS.get(hint)
        if name in values and allowed is not None and not isinstance(values[name], allowed):
            raise UsageError(f"{kind.__name__}.{name}: {values[name]!r} is no {hint.__name__}")
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{kind.__name__}: {error}") from error
