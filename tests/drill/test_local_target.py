import json
from pathlib import Path

import pytest

from antiphon.drill.local_target import LocalTarget, started
from antiphon.errors import UsageError
from antiphon.live.admin.client import AdminClient, find_server
from antiphon.live.local_servers import LocalServer, registered

PLACE = LocalServer(pid=7, url="http://127.0.0.1:9", sockets="/nowhere")


def stamps(route: str, began_at: float, first_token_at: float | None) -> dict[str, object]:
    return {
        "began_at": began_at,
        "routed_at": began_at,
        "route": route,
        "first_token_at": first_token_at,
    }


def client() -> AdminClient:
    with registered(None) as entry:
        entry.publish(PLACE.url)
        return find_server(PLACE.url, None)


def test_later_attempts_know_the_workers_of_the_one_before(tmp_path: Path) -> None:
    records = tmp_path / "requests.jsonl"
    trail = [
        stamps("prefill-0 > decode-1: chosen at its offer", 1.0, 1.5),
        stamps("mixed-0: sooner", 2.0, None),
        stamps("mixed-1: sooner", 3.0, 3.5),
    ]
    lines = [{"request": "r", "trail": trail}, {"request": "s", "trail": trail[:1]}]
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    attempts = LocalTarget(PLACE, client(), records=records).attempts()
    assert attempts is not None
    assert [(one.number, one.workers_before) for one in attempts] == [
        (2, ("prefill-0", "decode-1")),
        (3, ("mixed-0",)),
    ]
    assert [(one.began_at, one.first_token_at) for one in attempts] == [(2.0, None), (3.0, 3.5)]


def test_without_records_attempts_are_not_known() -> None:
    assert LocalTarget(PLACE, client()).attempts() is None


async def test_settings_that_can_not_be_are_the_users_to_mend() -> None:
    """It was reported as a cluster that failed, with options that a drill does not have."""
    with pytest.raises(UsageError, match=r"did not start: kv\.memory_bytes") as caught:
        async with started(["--kv-memory", "64TiB"]):
            raise AssertionError
    assert "--kv-memory" in str(caught.value)
    assert "--store" not in str(caught.value)
