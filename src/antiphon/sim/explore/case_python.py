"""A case as a test that can be pasted into `tests/`: it fails until the law holds."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from .case_json import Case, unusual
from .names import module_of

_WIDTH = 100
_RUN = "antiphon.sim.explore.cluster_run"


def case_test(case: Case, title: str) -> str:
    """The whole file, in the project's style. `title` says where the case comes from."""
    setup = _python(case.setup, indent=4, before=len("    setup = "))
    named = _names(case.setup) | {type(case.family).__name__}
    name = re.sub(r"\W+", "_", case.law.lower()).strip("_")[:40]
    body = [
        f"def test_{name}_holds() -> None:",
        f'    """{_one_line(case.problem)}"""',
        f"    setup = {setup}",
        f"    run_cluster(setup, {_enum(case.family)})",
    ]
    lines = [f'"""{_one_line(title)}"""', "", *_imports(named), "", "", *body]
    return "\n".join(lines) + "\n"


def _imports(names: Iterable[str]) -> list[str]:
    modules: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        modules[module_of(name)].append(name)
    modules[_RUN].append("run_cluster")
    lines: list[str] = []
    for module, imported in sorted(modules.items()):
        line = f"from {module} import {', '.join(imported)}"
        if len(line) > _WIDTH:
            line = "\n".join([f"from {module} import (", *(f"    {one}," for one in imported), ")"])
        lines.append(line)
    return lines


def _one_line(text: str) -> str:
    text = " ".join(text.split()).replace("\\", "/").replace('"', "'")
    return text if len(text) < _WIDTH - 10 else text[: _WIDTH - 14] + " …"


def _enum(value: Enum) -> str:
    return f"{type(value).__name__}.{value.name}"


def _names(value: Any) -> set[str]:
    """The classes that a value is made of."""
    match value:
        case Enum():
            return {type(value).__name__}
        case Mapping():
            return _all_names([*value.keys(), *value.values()])
        case _ if is_dataclass(value):
            return {type(value).__name__} | _all_names(unusual(value).values())
        case tuple() if hasattr(value, "_asdict"):
            return {type(value).__name__} | _all_names(value)
        case tuple():
            return _all_names(value)
        case _:
            return set()


def _all_names(values: Iterable[Any]) -> set[str]:
    return set[str]().union(*map(_names, values))


def _python(value: Any, indent: int, before: int) -> str:
    """An expression that gives the value; over several lines if it is too long for one."""
    begin, parts, end = _parts(value, indent + 4)
    if not parts:
        return begin + end
    line = begin + ", ".join(parts) + ("," if begin == "(" and len(parts) == 1 else "") + end
    if "\n" not in line and before + len(line) < _WIDTH:
        return line
    inner = " " * (indent + 4)
    return "\n".join([begin, *(f"{inner}{part}," for part in parts), " " * indent + end])


def _parts(value: Any, indent: int) -> tuple[str, list[str], str]:
    """How an expression begins, its parts, and how it ends."""
    match value:
        case Enum():
            return _enum(value), [], ""
        case Mapping():
            items = [
                f"{_python(key, indent, indent)}: {_python(one, indent, indent)}"
                for key, one in value.items()
            ]
            return "{", items, "}"
        case _ if is_dataclass(value) or hasattr(value, "_asdict"):
            named = unusual(value) if is_dataclass(value) else value._asdict()
            items = [
                f"{name}={_python(one, indent, indent + len(name) + 1)}"
                for name, one in named.items()
            ]
            return f"{type(value).__name__}(", items, ")"
        case tuple() if value:
            return "(", [_python(one, indent, indent) for one in value], ")"
        case _:
            return repr(value).replace("'", '"'), [], ""
