"""How calls are kept within a model's context.

Words stand for tokens, and a server adds its chat template, so room is left for that: so many
tokens a call, so many a message, and a share of answers, whose text may be split into more tokens
than it was made of.
"""

from typing import Annotated, TypeAlias

from antiphon.errors import UsageError

from .options import Option

CALL_TOKENS = 48
"""For the template's own system prompt, if there is one, and its begin of an answer."""
MESSAGE_TOKENS = 8
ANSWER_SLACK = 8
"""A quoted answer counts as one eighth longer than it was."""
DEFAULT_CONTEXT = 8192

MaxContext: TypeAlias = Annotated[
    int, Option("most tokens of a call, prompt and output", low=128, high=2**21)
]


def room(max_context: int, messages: int) -> int:
    """Tokens that are left for text and output in a call of so many messages."""
    return max_context - CALL_TOKENS - messages * MESSAGE_TOKENS


def quoted(answer_tokens: int) -> int:
    """Tokens that an answer of this length takes in a later prompt."""
    return answer_tokens + -(-answer_tokens // ANSWER_SLACK)


def spare(what: str, needed: int, left: int, max_context: int) -> int:
    """Tokens of `left` that the shortest calls of a workload don't need.

    Raises `UsageError` if even these don't fit.
    """
    if needed > left:
        raise UsageError(
            f"{what}: max_context is {max_context}, but its shortest calls need "
            f"{max_context + needed - left} tokens: raise it, or ask for shorter lengths"
        )
    return left - needed


class Budget:
    """Spare tokens, which lengths above their least take until nothing is left."""

    def __init__(self, spare_tokens: int) -> None:
        self._spare = spare_tokens

    def take(self, drawn: int, least: int) -> int:
        """The length that was drawn, or as much of it as there is room for. Mutates."""
        taken = min(drawn, least + self._spare)
        self._spare -= taken - least
        return taken

    def take_quoted(self, drawn: int, least: int) -> int:
        """The same for an answer that a later prompt quotes."""
        most = least + self._spare * ANSWER_SLACK // (ANSWER_SLACK + 1)
        taken = min(drawn, most)
        self._spare -= quoted(taken) - quoted(least)
        return taken
