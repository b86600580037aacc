"""What a request asks of a worker, in the counts that routing depends on."""

from dataclasses import dataclass
from functools import lru_cache

from antiphon.core.kv import party_pages
from antiphon.types import Request, RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Sizes of one attempt. The output's true length is no part of it: nobody knows it."""

    request: RequestId
    prompt: int
    """Tokens of the prompt."""
    resumed: tuple[int, ...]
    """Tokens that each unfinished sequence has beyond it."""
    tokens: int
    """To have in KV before the next token: the prompt once, and what each sequence resumes."""
    longest: int
    """Tokens of its longest unfinished sequence."""
    context: int
    """KV entries that a step of all its unfinished sequences reads."""

    @property
    def sequences(self) -> int:
        """Unfinished ones."""
        return len(self.resumed)

    def pages(self, page_tokens: int, block_tokens: int, new: int = 0) -> int:
        """Pages that it fills with `new` more tokens a sequence.

        Sequences share the prompt's whole blocks.
        """
        return _pages(self.prompt, self.resumed, new, page_tokens, block_tokens)

    def prompt_pages(self, page_tokens: int, block_tokens: int) -> int:
        """Pages that it must have at once: what was resumed may be computed one by one."""
        return _pages(self.prompt, (0,) * len(self.resumed), 0, page_tokens, block_tokens)


@lru_cache(maxsize=1 << 14)
def _pages(
    prompt: int, resumed: tuple[int, ...], new: int, page_tokens: int, block_tokens: int
) -> int:
    """Asked for each open request and each worker, of which nearly all have equal pages."""
    beyond = (one + new for one in resumed)
    return party_pages(prompt, beyond, page_tokens=page_tokens, block_tokens=block_tokens)


def demand_of(request: Request) -> Demand:
    """The demand of the request's present attempt."""
    prompt, n = len(request.prompt), request.sampling.n
    resumed = tuple(
        len(request.resumed[sequence]) if sequence < len(request.resumed) else 0
        for sequence in range(n)
        if sequence not in request.done
    )
    return Demand(
        request=request.id,
        prompt=prompt,
        resumed=resumed,
        tokens=prompt + sum(resumed),
        longest=prompt + max(resumed, default=0),
        context=len(resumed) * prompt + sum(resumed),
    )
