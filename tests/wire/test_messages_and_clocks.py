"""No point in time crosses from one process to another.

A closed list: whoever adds a number of seconds to a message has to say here that it is a duration.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from antiphon.wire import codec

DURATIONS = {
    "Fetched": {"seconds"},
    "Leave": {"timeout_s"},
    "LevelStats": {"decode_s_total", "encode_s_total"},
    "Locate": {"wait_s", "left_s", "compute_s"},
    "Located": {"ttl_s"},
    "Offer": {"ttl_s"},
    "PoolLent": {"ttl_s", "encode_s"},
    "PoolRead": {"wait_s"},
    "Pulled": {"seconds"},
    "Rejected": {"retry_after_s"},
    "Slo": {"ttft_s", "tpot_s"},
    "Started": {"queued_s"},
    "StoreAsk": {"wait_s"},
    "StoreWelcome": {"lease_ttl_s"},
    "TierStats": {"block_s"},
    "TokensGenerated": {"seconds"},
    "Welcome": {"heartbeat_s", "lost_after_s", "lease_ttl_s"},
    "WorkerView": {"busy_s_total"},
}
IN_TRANSIT = {"Request": {"deadline", "arrived_at"}}
"""`wire.durations` makes durations of these before they are sent (see `test_durations`)."""
NO_TIMES = {"SamplingParams", "Logprobs", "PathUse", "PoolPeer"}
"""Their numbers are probabilities, speeds and the like."""
SHOWN = {"Probed": {"unix_s"}}
"""What a clock says, for a person who asks whose is wrong: nothing is decided by it."""


def parts(shape: Any) -> Iterator[type]:
    """The classes that a type is made of."""
    if isinstance(shape, type) and not get_args(shape):
        yield shape
    for part in get_args(shape):
        yield from parts(part)


def times(kinds: list[Any]) -> dict[str, set[str]]:
    """Fields that can hold seconds, of all classes that can be in messages."""
    found: dict[str, set[str]] = {}
    waiting = [one for kind in kinds for one in parts(kind)]
    while waiting:
        one = waiting.pop()
        if not is_dataclass(one) or one.__name__ in found:
            continue
        hints = get_type_hints(one)
        found[one.__name__] = {f.name for f in fields(one) if float in parts(hints[f.name])}
        waiting += [part for f in fields(one) for part in parts(hints[f.name])]
    return {name: names for name, names in found.items() if names}


def test_all_times_in_messages_are_durations() -> None:
    found = times([entry.decoder.type for entry in codec._ENTRIES.values()])
    known = DURATIONS | IN_TRANSIT | SHOWN
    assert {name: names for name, names in found.items() if name not in NO_TIMES} == known


def test_a_time_that_is_new_is_found() -> None:
    @dataclass
    class Late:
        at: float | None

    assert times([tuple[Late, ...]]) == {"Late": {"at"}}
