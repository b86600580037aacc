"""The paths of a reader of pages, as they are reported."""

from antiphon.core.said_of_links import told_problem
from antiphon.core.tiers.breaker import BreakerState
from antiphon.core.transfer import PathView
from antiphon.store.transfer.tcp import PageClient
from antiphon.types import MOST_PATHS, PathState, PathUse

_SCHEME = "tcp://"


def path_uses(client: PageClient) -> tuple[PathUse, ...]:
    """Each path to the owner that `client` reads from, in the order of its addresses."""
    paths = zip(client.access.endpoints, client.paths(), strict=True)
    return tuple(_use(endpoint, view) for endpoint, view in paths)[:MOST_PATHS]


def _use(endpoint: str, view: PathView) -> PathUse:
    return PathUse(
        address=endpoint.removeprefix(_SCHEME),
        state=_state(view),
        bytes_per_s=view.bytes_per_s,
        bytes_total=view.bytes_total,
        failures_total=view.failures_total,
        rests_total=view.rests_total,
        problem=told_problem(view.problem),
    )


def _state(view: PathView) -> PathState:
    match view.state:
        case BreakerState.OPEN:
            return PathState.RESTING
        case BreakerState.PROBING:
            return PathState.ON_TRIAL
        case BreakerState.CLOSED:
            return PathState.OPEN if view.connected else PathState.UNUSED
