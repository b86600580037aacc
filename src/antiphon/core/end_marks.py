"""Which tokens end a sequence: the one rule for schedulers and for whoever makes text of tokens."""

from dataclasses import dataclass
from typing import Self

from antiphon.types import Request, TokenId


@dataclass(frozen=True, slots=True)
class EndMarks:
    """End-of-sequence and stop ids of a request, which end it from `min_tokens` output tokens on.

    Such a token counts as output and is no part of the text: it only marks the end.
    """

    ids: frozenset[TokenId]
    min_tokens: int

    @classmethod
    def of(cls, request: Request) -> Self:
        """The marks of each sequence of `request`."""
        sampling = request.sampling
        ids = frozenset((*request.eos_token_ids, *sampling.stop_token_ids))
        return cls(ids, sampling.min_tokens)

    def end(self, token: TokenId, outputs: int) -> bool:
        """Whether `token` ends a sequence as output token number `outputs`, counted from 1."""
        return token in self.ids and outputs >= self.min_tokens
