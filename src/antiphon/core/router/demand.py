"""What a request asks of a worker, in the counts that routing depends on."""

from dataclasses import dataclass

from antiphon.types import Request, RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Sizes of one attempt. The output's true length is no part of it: nobody knows it."""

    request: RequestId
    tokens: int
    """To have in KV before the next token: the prompt once, and what each sequence resumes."""
    longest: int
    """Tokens of its longest unfinished sequence."""
    context: int
    """KV entries that a step of all its unfinished sequences reads."""
    sequences: int
    """Unfinished ones."""

    def pages(self, page_tokens: int) -> int:
        """Pages that it fills before its next token, at most one more for each sequence."""
        return -(-self.tokens // page_tokens) + self.sequences - 1


def demand_of(request: Request) -> Demand:
    """The demand of the request's present attempt."""
    prompt, n = len(request.prompt), request.sampling.n
    resumed = [
        len(request.resumed[sequence]) if sequence < len(request.resumed) else 0
        for sequence in range(n)
        if sequence not in request.done
    ]
    return Demand(
        request=request.id,
        tokens=prompt + sum(resumed),
        longest=prompt + max(resumed, default=0),
        context=len(resumed) * prompt + sum(resumed),
        sequences=len(resumed),
    )
