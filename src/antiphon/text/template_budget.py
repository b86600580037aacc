"""The budget that one rendering of a template draws from, counted in characters."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateError

STEP_COST = 64
"""Characters' worth of one loop iteration or call."""


class _Budget:
    def __init__(self, characters: int) -> None:
        self.left = characters


_budget: ContextVar[_Budget | None] = ContextVar("template_budget", default=None)


@contextmanager
def budget(characters: int) -> Iterator[None]:
    """Bounds the work of what is rendered inside. Going over it raises `TemplateError`."""
    token = _budget.set(_Budget(characters))
    try:
        yield
    finally:
        _budget.reset(token)


def spend(characters: int) -> None:
    """Draw from the budget of this rendering. Raises `TemplateError` when it is used up."""
    current = _budget.get()
    if current is None:  # constants are folded when a template is compiled
        return
    current.left -= characters
    if current.left < 0:
        raise TemplateError("the chat template does too much work or writes too much text")


def spend_text(value: object) -> None:
    """Pays for the text of `value`, before it is made: nested lists can spell out huge text."""
    if isinstance(value, str):
        spend(len(value))
        return
    waiting = [value]
    while waiting:
        item = waiting.pop()
        spend(len(item) if isinstance(item, str) else STEP_COST)
        if isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item


def paid(value: Any) -> Any:
    """`value`, after paying for its text."""
    spend_text(value)
    return value


def joinable(values: Iterable[Any], separator: str) -> list[Any]:
    """What `separator.join` is about to join, after paying for the result."""
    items = list(values)
    spend_text(items)
    spend(len(items) * len(separator))
    return items


def replaced_size(text: str, old: str, new: str) -> int:
    """An upper bound of the length of `text.replace(old, new)`."""
    return len(text) + text.count(old) * len(new)
