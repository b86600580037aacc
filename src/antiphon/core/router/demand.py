"""What a request asks of a worker, in the counts that routing depends on."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from antiphon.core.kv import party_pages
from antiphon.types import Request, RequestId

from .worker_kind import WorkerKind


class Needs(NamedTuple):
    """What a request needs of one kind of worker, as that counts it.

    `runs[drawn]`, `adopts[drawn]`: whether the worker can run all of it if it has nothing else;
    whether it can go on with its KV, each sequence with room for one token more. `drawn` is how
    many tokens each sequence will have got before it comes there: 0 or 1.
    """

    runs: tuple[bool, bool]
    adopts: tuple[bool, bool]
    pages: int | None
    """That it fills if none of them is given back; None: page size not known."""
    offers: bool
    """Its prompt, each sequence with the token that is drawn last, is within half of the pool."""


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
    _needs: dict[WorkerKind, Needs] = field(default_factory=dict, repr=False, compare=False)

    @property
    def sequences(self) -> int:
        """Unfinished ones."""
        return len(self.resumed)

    def needs(self, kind: WorkerKind) -> Needs:
        """On workers of that kind. Found once: a decision asks it of dozens, most of them alike."""
        needs = self._needs.get(kind)
        if needs is None:
            needs = self._needs[kind] = self._needs_on(kind)
        return needs

    def _needs_on(self, kind: WorkerKind) -> Needs:
        runs = (self._fits(kind, 0), self._fits(kind, 1))
        kv, total = kind.kv, kind.total_pages
        if kv is None:
            return Needs(runs, adopts=runs, pages=None, offers=False)
        pages, one_more, two_more = (
            self.pages(kv.page_tokens, kv.block_tokens, new) * kv.entry_pages for new in range(3)
        )
        if total is None:
            return Needs(runs, adopts=runs, pages=pages, offers=False)
        adopts = (runs[0] and one_more <= total, runs[1] and two_more <= total)
        return Needs(runs, adopts, pages, offers=2 * one_more <= total)

    def _fits(self, kind: WorkerKind, drawn: int) -> bool:
        longest = self.longest + drawn + 1
        if longest > kind.max_model_len:
            return False
        kv, total, windowed = kind.kv, kind.total_pages, kind.groups is not None
        if total is None or kv is None:
            return True
        if self.sequences == 1 and windowed:
            return True  # its own limit of a sequence's length counts what windows give back
        pages = self.prompt_pages(kv.page_tokens, kv.block_tokens) * kv.entry_pages
        return pages <= total and (windowed or longest <= total * kv.page_tokens)

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
