"""One way to serve a request, with what is predicted of it."""

from typing import NamedTuple

from antiphon.types import Seconds, WorkerId


class Option(NamedTuple):
    """A worker for one phase, or a route: the worker that does all, or prefill and decode.

    `headroom` is the smaller of (target - predicted) / target over the targets that this option
    decides about: below 0 one of them is missed. `work_s`: seconds that it keeps workers busy and
    running sequences waiting, at the model's pace, so that equal workers come out equal. `chosen`
    is the number of the last decision for it. A tuple, since a decision makes one a worker.
    """

    workers: tuple[WorkerId, ...]
    ttft_s: Seconds
    queued_s: Seconds
    """The part of `ttft_s` for which it waits for others."""
    tpot_s: Seconds
    headroom: float
    work_s: Seconds
    requests: int
    chosen: int
    fetch: int = 0
    """Tokens that the prompt begins with and that are fetched from the store first."""
    effort: float = 0.0
    """The part of the TTFT target that it takes by itself, without what it waits for others, and
    shared with all open requests that begin alike: what is computed for one is there for all."""
    matched: float = 0.0
    """The share of the request's tokens that need not be computed."""
    prefill_tokens: int = 0
    """To be computed there until the request has its first token: its own, and all before it."""
    context_tokens: int = 0
    """In the KV of all that decodes there, with the request."""

    @property
    def turn(self) -> "Turn":
        """Fewest requests, then the one whose last turn is longest ago, then id."""
        return Turn(self.requests, self.chosen, self.workers)


class Turn(NamedTuple):
    """A total order over options that are equally good otherwise."""

    requests: int
    chosen: int
    workers: tuple[WorkerId, ...]


def joined(prefill: Option, decode: Option) -> Option:
    """The route that computes the prompt on one worker and goes on on the other."""
    return Option(
        workers=prefill.workers + decode.workers,
        ttft_s=prefill.ttft_s,
        queued_s=prefill.queued_s,
        tpot_s=decode.tpot_s,
        headroom=min(prefill.headroom, decode.headroom),
        work_s=prefill.work_s + decode.work_s,
        requests=prefill.requests + decode.requests,
        chosen=max(prefill.chosen, decode.chosen),
        fetch=prefill.fetch,
        effort=prefill.effort,
        matched=prefill.matched,
        prefill_tokens=prefill.prefill_tokens,
        context_tokens=decode.context_tokens,
    )


def reused(choice: Option) -> str:
    """What of the prompt is there already, for people."""
    if choice.fetch:
        return f", the first {choice.fetch} tokens from the store"
    return f", {choice.matched:.0%} of it cached" if choice.matched else ""
