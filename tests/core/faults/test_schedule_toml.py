"""What a plan's file says, and what is told of one that says what it can't."""

from math import inf

import pytest

from antiphon.core.faults import (
    GATEWAY,
    STORE,
    AnyWorker,
    At,
    Boundary,
    Corrupt,
    Crash,
    Cut,
    Drain,
    Every,
    FillDisk,
    Lag,
    Restart,
    Resume,
    ScheduleEntry,
    Slow,
    Stall,
    When,
    read_schedule,
)
from antiphon.errors import UsageError
from antiphon.types import Role

FAULT = '[[fault]]\nat = "1s"\ntarget = "random"\naction = "kill"\n'


def entry(lines: str) -> ScheduleEntry:
    (found,) = read_schedule(f"[[fault]]\n{lines}", "plan.toml").schedule.entries
    return found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            'at = "10s"\ntarget = "decode-0"\naction = "kill"',
            ScheduleEntry(At(10.0), "decode-0", Crash(None)),
        ),
        (
            'every = "1.5m"\njitter = 0.5\ncount = 3\ntarget = "random"\naction = "stop"\n'
            'for = "500ms"',
            ScheduleEntry(Every(90.0, 0.5, 3), AnyWorker(), Stall(0.5)),
        ),
        (
            'after-event = "offer"\noccurrence = 3\ntarget = "prefill"\naction = "stop"',
            ScheduleEntry(When(Boundary.OFFER, 3), AnyWorker(Role.PREFILL), Stall(inf)),
        ),
        (
            'after-event = "token"\ntarget = "decode"\naction = "resume"',
            ScheduleEntry(When(Boundary.TOKEN, 1), AnyWorker(Role.DECODE), Resume()),
        ),
        (
            'at = "0s"\ntarget = "store"\naction = "slow"\nfactor = 4\nfor = "1h"',
            ScheduleEntry(At(0.0), STORE, Slow(4.0, 3600.0)),
        ),
        (
            'at = "1s"\ntarget = "gateway"\naction = "cut"',
            ScheduleEntry(At(1.0), GATEWAY, Cut()),
        ),
        (
            'at = "1s"\ntarget = "gateway"\naction = "delay"\nby = "50ms"\nfor = "2s"',
            ScheduleEntry(At(1.0), GATEWAY, Lag(0.05, 2.0)),
        ),
        ('at = "1s"\naction = "corrupt"', ScheduleEntry(At(1.0), STORE, Corrupt())),
        (
            'at = "1s"\naction = "fill-disk"\nfor = "3s"',
            ScheduleEntry(At(1.0), STORE, FillDisk(3.0)),
        ),
        (
            'at = "1s"\ntarget = "mixed"\naction = "drain"\nfor = "3s"',
            ScheduleEntry(At(1.0), AnyWorker(Role.MIXED), Drain(3.0)),
        ),
        (
            'at = "1s"\ntarget = "gateway"\naction = "restart"',
            ScheduleEntry(At(1.0), GATEWAY, Restart()),
        ),
    ],
)
def test_each_action_and_trigger_is_read(lines: str, expected: ScheduleEntry) -> None:
    assert entry(lines) == expected


def test_the_seed_is_the_files_unless_another_is_given() -> None:
    assert read_schedule(f"seed = 7\n{FAULT}", "f").schedule.seed == 7
    assert read_schedule(f"seed = 7\n{FAULT}", "f", seed=0).schedule.seed == 0
    assert read_schedule(FAULT, "f").schedule.seed == 0


def test_the_load_is_handed_on_as_it_is() -> None:
    assert read_schedule(f"[load]\nrate = 3\n{FAULT}", "f").load == {"rate": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "fault: 1 to 1000 tables"),
        ("seed = ", "no TOML"),
        (f"seed = -1\n{FAULT}", "seed: -1 must be 0 to"),
        (f"sed = 1\n{FAULT}", "sed: no such key: did you mean seed?"),
        ("[fault]\nat = '1s'\n", "double brackets"),
        (f"load = 3\n{FAULT}", "load: must be a table"),
    ],
)
def test_a_wrong_file_is_named_with_the_remedy(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_schedule(text, "plan.toml")
    assert str(caught.value).startswith("plan.toml: ")
    assert says in str(caught.value)


KILL = 'target = "random"\naction = "kill"\n'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (KILL, "at: exactly one of at, every, after-event is needed, not none"),
        (f'at = "1s"\nevery = "2s"\n{KILL}', "not at and every"),
        (f"at = 1\n{KILL}", 'at: 1 must be a time such as "500ms"'),
        (f'at = "1 hour"\n{KILL}', 'at: "1 hour" must be a time'),
        (f'at = "200h"\n{KILL}', 'at: "200h" must be 0s to'),
        (f'every = "10ms"\n{KILL}', 'every: "10ms" must be 0.1s to'),
        (f'every = "1s"\njitter = 2\n{KILL}', "jitter: 2 must be 0 to 1"),
        (f'every = "1s"\njitter = true\n{KILL}', "jitter: true must be a number"),
        (f'every = "1s"\ncount = 0\n{KILL}', "count: 0 must be 1 to"),
        (f'every = "1s"\ncount = 1.5\n{KILL}', "count: 1.5 must be a whole number"),
        (f'at = "1s"\ncount = 2\n{KILL}', "count: no such key"),
        (f'after-event = "tokens"\n{KILL}', 'after-event: "tokens" is no event: known are'),
        (f'after-event = "token"\noccurrence = 0\n{KILL}', "occurrence: 0 must be 1 to"),
        ('at = "1s"\ntarget = "random"', "action: it is missing: must be one of kill, stop"),
        (
            'at = "1s"\ntarget = "random"\naction = "drop"',
            'action: "drop" is none here: must be one of',
        ),
        ('at = "1s"\naction = "kill"', "target: it is missing: kill can hit a worker's id"),
        ('at = "1s"\ntarget = 3\naction = "kill"', "target: 3 must be a text"),
        ('at = "1s"\ntarget = "../x"\naction = "kill"', 'target: not "../x": kill can hit'),
        ('at = "1s"\ntarget = "store"\naction = "cut"', 'target: not "store": cut can hit'),
        ('at = "1s"\ntarget = "gateway"\naction = "drain"\nfor = "1s"', 'not "gateway"'),
        ('at = "1s"\ntarget = "random"\naction = "corrupt"', "corrupt can hit store"),
        (f'at = "1s"\nfor = "1s"\n{KILL}', "for: no such key"),
        (f'at = "1s"\n{KILL}fro = "1s"', "fro: no such key"),
        ('at = "1s"\ntarget = "random"\naction = "slow"\nfor = "1s"', "factor: this action needs"),
        (
            'at = "1s"\ntarget = "random"\naction = "slow"\nfactor = 1\nfor = "1s"',
            "factor: 1 must be 1.1 to 100",
        ),
        ('at = "1s"\ntarget = "random"\naction = "slow"\nfactor = 2', "for: this action needs it"),
        ('at = "1s"\ntarget = "random"\naction = "stop"\nfor = "0s"', 'for: "0s" must be'),
        ('at = "1s"\ntarget = "gateway"\naction = "delay"\nfor = "1s"', "by: this action needs it"),
    ],
)
def test_a_wrong_fault_is_named_with_its_number_and_key(lines: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_schedule(f"{FAULT}[[fault]]\n{lines}", "plan.toml")
    assert str(caught.value).startswith("plan.toml: fault 2: ")
    assert says in str(caught.value)
