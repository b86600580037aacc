"""Finds how tight targets may be at one rate of a server."""

from collections.abc import Callable

from antiphon.core.goodput import RunAt, SloScale, SloScaleSearch, after_warmup
from antiphon.types import Seconds

from .measure import Measure, answered


async def find_slo_scale(
    search: SloScaleSearch,
    measure: Measure,
    *,
    warmup_s: Seconds = 0.0,
    on_progress: Callable[[SloScale, RunAt | None], None] = lambda _so_far, _next: None,
) -> SloScale:
    """Measure what `search` asks for until it has its result. Mutates `search`.

    Arguments, cancelling and errors are as in `find_goodput`.
    """
    while isinstance(step := search.next(), RunAt):
        on_progress(search.result(), step)
        records = answered(await measure(step.rate_per_s, warmup_s + step.duration_s))
        search.observe(after_warmup(records, warmup_s))
    on_progress(step, None)
    return step
