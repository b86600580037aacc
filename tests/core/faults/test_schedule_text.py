"""A schedule's lines say when, what and whom."""

from antiphon.core.faults import expand, read_schedule, schedule_lines
from antiphon.types import Role

PLAN = """
[[fault]]
at = "2s"
target = "decode"
action = "stop"
for = "500ms"
[[fault]]
at = "1s"
target = "random"
action = "slow"
factor = 4
for = "2s"
[[fault]]
at = "3s"
target = "decode-7"
action = "stop"
[[fault]]
at = "4s"
target = "mixed"
action = "kill"
[[fault]]
after-event = "offer"
occurrence = 3
target = "gateway"
action = "delay"
by = "10ms"
for = "1s"
"""
WORKERS = [("prefill-0", Role.PREFILL), ("decode-0", Role.DECODE), ("decode-1", Role.DECODE)]


def test_each_fault_has_its_line_in_order_of_time() -> None:
    schedule = read_schedule(PLAN, "plan.toml").schedule
    slow, stop, named, nobody, delay = schedule_lines(expand(schedule, 10.0), 0, WORKERS)
    assert slow.strip().startswith("1.00 s  slow 4 times for 2 s")
    assert {"prefill-0", "decode-0", "decode-1"} <= set(slow.split())
    assert "2.00 s  stop for 0.5 s" in stop
    assert "prefill-0" not in stop
    assert "decode-0" in stop
    assert "3.00 s  stop  " in named
    assert "decode-7" in named
    assert "mixed" in nobody
    assert "offer 3  delay by 0.01 s for 1 s" in delay
    assert delay.endswith("gateway  (fault 5)")
