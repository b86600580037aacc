"""Who of a class is served first: whoever's target comes first, with bounded overtaking."""

from antiphon.types import Request, Seconds

PATIENCE_S: Seconds = 5.0
"""How far a short target gets ahead: whoever came so much earlier is served first all the same.

So a stream of urgent requests can't starve the others of their class: each is overtaken only by
requests that come within this time after it.
"""


def urgency(request: Request, arrived_at: Seconds, ttft_s: Seconds = float("inf")) -> Seconds:
    """When its first token is due (earliest deadline first): smaller is served first.

    `ttft_s`: the target of a request that brings none. Never before `arrived_at` for a request
    whose deadline has not passed, nor later than `PATIENCE_S` after it. Does not mutate.
    """
    if request.slo is not None:
        ttft_s = request.slo.ttft_s
    due_at = arrived_at + min(PATIENCE_S, ttft_s)
    return due_at if request.deadline is None else min(due_at, request.deadline)
