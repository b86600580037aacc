"""Jinja's filters within a budget: they pay for what they go through and what they make."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, cast

from jinja2 import nodes, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.filters import do_indent, do_join

from .template_budget import STEP_COST, joinable, paid, replaced_size, spend, spend_text

_ITEM_COST = 16
"""Characters' worth of one element of a list that a filter goes through."""

# fmt: off
_FORBIDDEN = frozenset({
    "batch", "center", "format", "pprint", "random", "slice", "sum", "urlize", "wordwrap",
    "xmlattr",
})
_STRUCTURAL = frozenset({
    "attr", "count", "d", "default", "dictsort", "first", "groupby", "items", "last",
    "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select",
    "selectattr", "sort", "unique",
})
"""Filters that never turn a list into text; the others pay for all text inside."""
# fmt: on
_MAX_INDENT = 64
_NOT_ASCII = re.compile("[^\x00-\x7f\ud800-\udfff]")


def bounded_filters(filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """`filters` without those that can't be bounded, each paying from the budget."""
    own: dict[str, Callable[..., Any]] = {
        "indent": _indent,
        "join": _join,
        "replace": _replace,
        "tojson": _to_json,
    }
    return {
        name: _paying(own.get(name, function), deep=name not in _STRUCTURAL)
        for name, function in filters.items()
        if name not in _FORBIDDEN
    }


def _paying(function: Callable[..., Any], *, deep: bool) -> Callable[..., Any]:
    """The filter, paying for its arguments (all text inside them, if `deep`) and its result."""

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        for argument in args:
            if isinstance(argument, str | list | tuple | dict):
                if deep:
                    spend_text(argument)
                else:
                    spend(STEP_COST + len(argument) * _item_cost(argument))
        result = function(*args, **kwargs)
        if isinstance(result, str | list | tuple):
            spend(len(result))
        return result

    return filtered


def _item_cost(value: object) -> int:
    return 1 if isinstance(value, str) else _ITEM_COST


@pass_eval_context
def _join(
    context: nodes.EvalContext, values: Iterable[Any], d: str = "", attribute: Any = None
) -> str:
    return cast(str, do_join(context, joinable(values, str(d)), d, attribute))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = str(paid(text)), str(old), str(new)
    spend(replaced_size(text, old, new))
    return text.replace(old, new, -1 if count is None else count)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    size = len(width) if isinstance(width, str) else width
    if size > _MAX_INDENT:
        raise SecurityError("the chat template indents too far")
    spend(len(text) + (text.count("\n") + 1) * size)
    return do_indent(text, width, first, blank)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As model authors expect it: no HTML escapes (unlike Jinja's own filter)."""
    if isinstance(indent, str) or (indent or 0) > _MAX_INDENT:
        raise SecurityError("the chat template indents too far")
    spend_text(value)
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if ensure_ascii:  # lone surrogates stand for hidden text and stay as they are
        text = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text
