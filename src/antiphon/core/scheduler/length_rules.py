"""How long a running sequence is taken to grow: the variants of `scheduler.admission`.

All go through the same forecast of memory (`admission.peak_pages`), so that they differ in nothing
but this number:

* past-future: as long as recent answers that got so far (Gong et al., ASPLOS 2025);
* conservative: to its `max_tokens`. Nothing is ever thrown out, and memory idles;
* aggressive: no longer than it is. Memory is full, and who runs is thrown out to make room.
"""

from typing import Protocol

from antiphon.errors import BugError

from .history import History


class LengthRule(Protocol):
    """An output's length as it is reckoned with."""

    def __call__(self, generated: int, cap: int, /) -> int:
        """Of a sequence that has `generated` output tokens, of at most `cap`: more than it has."""
        ...


def to_its_limit(generated: int, cap: int) -> int:
    """As long as it may get."""
    return max(generated + 1, cap)


def no_further(generated: int, cap: int) -> int:
    """The next token is its last."""
    return generated + 1


def length_rule(admission: str, history: History) -> LengthRule:
    """The rule that `scheduler.admission` names."""
    match admission:
        case "past-future":
            return history.predict
        case "conservative":
            return to_its_limit
        case "aggressive":
            return no_further
        case _:
            raise BugError(f"there is no admission rule named {admission!r}")
