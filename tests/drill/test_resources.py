import os
import socket
from pathlib import Path

from antiphon.drill.resources import Resources, growth, resources_of

SLACK = Resources(memory_bytes=100, descriptors=2, sockets=0)


def test_what_this_process_opens_is_counted() -> None:
    before = resources_of(os.getpid())
    assert before is not None
    with socket.socket(), Path(os.devnull).open():
        during = resources_of(os.getpid())
    assert during is not None
    assert during.descriptors == before.descriptors + 2
    assert during.sockets == before.sockets + 1
    assert during.memory_bytes > 0


def test_nobody_has_that_id() -> None:
    assert resources_of(2**22 + 1) is None


def test_growth_beyond_the_slack_is_named_for_those_who_lived_through() -> None:
    old = Resources(memory_bytes=1000, descriptors=5, sockets=1)
    new = Resources(memory_bytes=1100, descriptors=8, sockets=2)
    lines = growth({1: old, 2: old}, {1: new, 3: new}, slack=SLACK)
    assert lines == [
        "process 1: descriptors grew from 5 to 8",
        "process 1: sockets grew from 1 to 2",
    ]
    assert growth({1: new}, {1: old}, slack=SLACK) == []
