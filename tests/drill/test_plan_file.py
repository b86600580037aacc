"""A drill's plan out of a file, and what is told of one that a drill can't play."""

from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.faults import AnyWorker, At, Crash, Every, ScheduleEntry
from antiphon.drill.plan import DrillPlan, FaultKind, random_faults
from antiphon.drill.plan_file import read_plan
from antiphon.errors import UsageError
from antiphon.types import Slo

FAULT = '[[fault]]\nat = "1s"\ntarget = "random"\naction = "kill"\n'
EXAMPLE = Path(__file__).parents[2] / "examples" / "faults.toml"


def read(folder: Path, text: str, seed: int | None = None) -> DrillPlan:
    file = folder / "plan.toml"
    file.write_text(text)
    return read_plan(file, seed)


def test_faults_and_load_of_a_file(tmp_path: Path) -> None:
    plan = read(
        tmp_path,
        'seed = 3\n[load]\nrate = 1.5\nduration = "2m"\nasks = 7\nprompt-words = "5-6"\n'
        'max-tokens = "9-9"\nttft = "500ms"\ntpot = "50ms"\nundisturbed = true\n' + FAULT,
    )
    assert plan.seed == 3
    assert plan.schedule.entries == (ScheduleEntry(At(1.0), AnyWorker(), Crash(None)),)
    load = plan.load
    assert (load.rate_per_s, load.duration_s, load.asks) == (1.5, 120.0, 7)
    assert (load.mix.prompt_words, load.mix.max_tokens) == ((5, 6), (9, 9))
    assert load.slo == Slo(ttft_s=0.5, tpot_s=0.05)
    assert load.undisturbed
    assert read(tmp_path, f"seed = 3\n{FAULT}", seed=4).seed == 4


def test_only_what_needs_it_gets_a_proxy_or_a_disk(tmp_path: Path) -> None:
    plan = read(tmp_path, FAULT)
    assert not plan.needs_proxy
    assert not plan.needs_disk
    cut = read(tmp_path, '[[fault]]\nat = "1s"\ntarget = "gateway"\naction = "cut"\n')
    assert (cut.needs_proxy, cut.needs_disk) == (True, False)
    worker = read(tmp_path, '[[fault]]\nat = "1s"\ntarget = "mixed-0"\naction = "cut"\n')
    assert not worker.needs_proxy
    corrupt = read(tmp_path, '[[fault]]\nat = "1s"\naction = "corrupt"\n')
    assert (corrupt.needs_proxy, corrupt.needs_disk) == (False, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f'[load]\nduration = "0s"\n{FAULT}', '[load]: duration: "0s" must be 1s to'),
        (f"[load]\nrate = 0\n{FAULT}", "[load]: rate: 0 must be 0.01 to"),
        (f'[load]\nmax-tokens = "9-8"\n{FAULT}', '[load]: max-tokens: "9-8": the first number'),
        (f'[load]\nmax-tokens = "0-8"\n{FAULT}', '[load]: max-tokens: "0-8" must be two numbers'),
        (f"[load]\nundisturbed = 1\n{FAULT}", "[load]: undisturbed: 1 must be true or false"),
        (f"[load]\nrat = 1\n{FAULT}", "[load]: rat: no such key: did you mean rate?"),
        (
            '[[fault]]\nafter-event = "lease"\ntarget = "random"\naction = "kill"\n',
            'fault 1: after-event: "lease" is no event: known are end, join, offer, pulled, token',
        ),
        (
            f'{FAULT}[[fault]]\nafter-event = "renew"\ntarget = "random"\naction = "kill"\n',
            'fault 2: after-event: "renew" can\'t be seen from outside: a drill sees token, end',
        ),
        (
            '[[fault]]\nat = "1s"\ntarget = "decode-0"\naction = "delay"\nby = "1s"\nfor = "1s"\n',
            "fault 1: target: a drill can delay only what passes between clients and the gateway",
        ),
    ],
)
def test_what_a_drill_can_not_play_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "plan.toml") in str(caught.value)
    assert says in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_plan(tmp_path / "none.toml")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no text in UTF-8"):
        read_plan(binary)
    with pytest.raises(UsageError, match="longer than"):
        read(tmp_path, "#" * (2**20 + 1))


def test_the_example_is_a_plan() -> None:
    plan = read_plan(EXAMPLE)
    assert {fault.entry for fault in plan.faults()} == set(
        range(1, len(plan.schedule.entries) + 1)
    ), "each of its faults happens"


def test_kills_and_stops_in_turn_are_as_many_as_of_one_kind() -> None:
    def faults(kind: FaultKind) -> list[str]:
        schedule = random_faults(kind, seed=1, every_s=1.0, stop_for_s=5.0)
        entries = schedule.entries
        return [type(entry.action).__name__ for entry in entries]

    assert faults(FaultKind.KILL) == ["Crash"]
    assert faults(FaultKind.STOP) == ["Stall"]
    assert faults(FaultKind.MIXED) == ["Crash", "Stall"]
    both, one = (
        random_faults(kind, seed=1, every_s=1.0, stop_for_s=5.0)
        for kind in (FaultKind.MIXED, FaultKind.KILL)
    )
    assert isinstance(one.entries[0].trigger, Every)
    twice = replace(one.entries[0].trigger, period_s=2 * one.entries[0].trigger.period_s)
    assert [entry.trigger for entry in both.entries] == [twice, twice]
