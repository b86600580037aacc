"""From what somebody wants to be sent to a plan of it."""

from itertools import islice

from antiphon.core.goodput import Slos
from antiphon.errors import UsageError
from antiphon.types import Seconds
from antiphon.workload import (
    Trace,
    Workload,
    calls_per_session,
    has_own_times,
    parse_arrivals,
)

from .load_plan import LoadPlan
from .slo_text import with_defaults

DEFAULT_RATE_PER_S = 1.0
_LOOKED_AT = 200
"""Sessions that are looked at for the classes that there are."""
_LOOKED_AT_FOR_RARE = 2_000
"""Sessions that are looked at for a class that is not among those."""


def plan_load(  # noqa: PLR0913  what a load is made of
    workload: Workload,
    *,
    arrivals: str | None,
    rate_per_s: float | None,
    duration_s: Seconds,
    slos: Slos,
    most_calls: int | None = None,
    devices: int = 1,
    seed: int = 0,
    title: str = "",
) -> LoadPlan:
    """The load; `rate_per_s` is of calls. Its warm-up is 0.

    Without `arrivals` they are the workload's own times where it has some, else Poisson's; without
    a rate either, `DEFAULT_RATE_PER_S`. Classes without targets in `slos` have their presets.
    Raises `UsageError`, also for a file that can't be read or has nothing to send.
    """
    calls = 1.0 if isinstance(workload, Trace) else calls_per_session(workload, seed)
    kind = arrivals or ("trace" if has_own_times(workload) else "poisson")
    if rate_per_s is None and arrivals is None and kind == "poisson":
        rate_per_s = DEFAULT_RATE_PER_S
    return LoadPlan(
        workload=workload,
        arrivals=parse_arrivals(kind, None if rate_per_s is None else rate_per_s / calls),
        calls_per_session=calls,
        duration_s=duration_s,
        most_calls=most_calls,
        slos=_slos(slos, workload, seed),
        devices=devices,
        seed=seed,
        title=title,
        notes=_scaled_down(workload),
    )


def _scaled_down(workload: Workload) -> tuple[str, ...]:
    """What a reader should know of a trace that is not sent as it was recorded."""
    said = workload.scaled_down if isinstance(workload, Trace) else None
    return () if said is None else (said,)


def _slos(named: Slos, workload: Workload, seed: int) -> Slos:
    """What was said, and what holds for the others. Raises `UsageError` for nobody's targets."""
    classes = _classes(workload, seed, _LOOKED_AT)
    wanted = {name for name, _ in named if name}
    if not wanted <= classes:
        classes = _classes(workload, seed, _LOOKED_AT_FOR_RARE)
    for name in sorted(wanted - classes):
        raise UsageError(
            f'targets for the class "{name}": the workload has no such class, only '
            f"{', '.join(sorted(classes))}"
        )
    return with_defaults(named, sorted(classes))


def _classes(workload: Workload, seed: int, looked_at: int) -> set[str]:
    """Those of the first sessions; a trace's are alike, and may have very long prompts."""
    looked_at = 1 if isinstance(workload, Trace) else looked_at
    return {one.slo_class for one in islice(workload.sessions(seed), looked_at)}
