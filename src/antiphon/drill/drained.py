"""What a cluster still holds, of what it must not hold when nobody asks for anything."""

from collections import Counter
from collections.abc import Mapping, Sequence

from antiphon.live.admin.status import ClusterStatus
from antiphon.types import Health

GAUGES = (
    "antiphon_offered_pages",
    "antiphon_worker_leases",
    "antiphon_leases",
    "antiphon_held_requests",
    "antiphon_pulling_requests",
)
"""Of the workers and of the gateway: what `antiphon status` does not tell."""


def held_in(status: ClusterStatus) -> Counter[str]:
    """By the gateway's and the workers' own word; and who has not joined."""
    held = Counter({"open requests": status.open_requests})
    for worker in status.workers:
        held[f"{worker.id}: requests that run"] = worker.running or 0
        held[f"{worker.id}: requests that wait"] = worker.waiting or 0
        held[f"{worker.id}: used share of KV, in ten thousandths"] = round(
            (worker.kv_used or 0.0) * 10_000
        )
        held[f"{worker.id}: lives that have not joined"] = int(worker.health != Health.JOINED)
    return held


def held_by(gauges: Mapping[str, float]) -> Counter[str]:
    """Offers, leases, held requests and pulls. A gauge that is not there counts as one thing left.

    `gauges`: by name with labels, as /metrics has them.
    """
    held: Counter[str] = Counter()
    for name in GAUGES:
        found = {series: count for series, count in gauges.items() if series.split("{")[0] == name}
        held.update({series: round(count) for series, count in found.items()})
        if not found:
            held[f"{name} (missing in /metrics)"] = 1
    return held


def leftovers(held: Counter[str]) -> Sequence[str]:
    """One line for each thing that should be zero after quiet and is not."""
    return [f"{name} is {count}, not 0" for name, count in sorted(held.items()) if count]
