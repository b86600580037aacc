from collections import Counter

import pytest

from antiphon.drill.drained import GAUGES, held_by, held_in, leftovers
from antiphon.live.admin.status import ClusterStatus, WorkerStatus
from antiphon.types import Role


def test_what_is_left_is_named() -> None:
    assert leftovers(Counter({"b": 2, "a": 1, "c": 0})) == ["a is 1, not 0", "b is 2, not 0"]


def status(open_requests: int = 0, **worker: object) -> ClusterStatus:
    one = {"id": "p-0", "role": Role.PREFILL, "health": "joined", "kv_used": 0.0, **worker}
    return ClusterStatus(
        model="m",
        version="1",
        state="ready",
        gateway_pid=1,
        open_requests=open_requests,
        workers=(WorkerStatus(**one),),  # pyright: ignore[reportArgumentType]
    )


def test_a_quiet_cluster_holds_nothing() -> None:
    assert leftovers(held_in(status()) + held_by(dict.fromkeys(GAUGES, 0.0))) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (status(open_requests=2), "open requests is 2"),
        (status(running=1), "p-0: requests that run is 1"),
        (status(waiting=3), "p-0: requests that wait is 3"),
        (status(kv_used=0.01), "p-0: used share of KV, in ten thousandths is 100"),
        (status(health="suspect"), "p-0: lives that have not joined is 1"),
    ],
)
def test_what_status_tells(wrong: ClusterStatus, says: str) -> None:
    (line,) = leftovers(held_in(wrong))
    assert line.startswith(says)


@pytest.mark.parametrize("name", GAUGES)
def test_what_only_metrics_tell(name: str) -> None:
    others = {other: 0.0 for other in GAUGES if other != name}
    series = f'{name}{{worker="p-0"}}'
    assert leftovers(held_by({**others, series: 3.0})) == [f"{series} is 3, not 0"]
    assert leftovers(held_by(others)) == [f"{name} (missing in /metrics) is 1, not 0"]
