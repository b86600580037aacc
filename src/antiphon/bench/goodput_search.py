"""Runs a search for goodput against a server."""

from collections.abc import Callable

from antiphon.core.goodput import Attainment, Goodput, GoodputSearch, RunAt, Slos
from antiphon.types import Seconds

from .measure import Measure, answered


async def find_goodput(
    search: GoodputSearch,
    measure: Measure,
    slos: Slos,
    *,
    warmup_s: Seconds = 0.0,
    on_progress: Callable[[Goodput, RunAt | None], None] = lambda _so_far, _next: None,
) -> Goodput:
    """Measure what `search` asks for until it has its result. Mutates `search`.

    Each run begins with `warmup_s` that count for nothing, in addition to what the search asks
    for. `on_progress` hears what is known and what is run next, before each run and at the end
    (None).

    The caller owns `search`: when this is cancelled, or raises as the server is gone (`PeerError`),
    `search.result()` has what was found by then.
    """
    while isinstance(step := search.next(), RunAt):
        on_progress(search.result(), step)
        records = answered(await measure(step.rate_per_s, warmup_s + step.duration_s))
        search.observe(step.rate_per_s, Attainment.of(records, slos, warmup_s=warmup_s))
    on_progress(step, None)
    return step
