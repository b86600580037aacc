"""What faults cost, in sentences."""

import pytest

from antiphon.report import FaultCost, FaultCosts, fault_lines


def cost(**other: object) -> FaultCost:
    return FaultCost(
        **{
            "entry": 1,
            "kind": "kill",
            "target": "mixed-0",
            "at_s": 2.0,
            "happened": True,
            "lost_calls": 3.25,
            "recovery_s": 1.5,
            **other,
        }
    )


def costs(*faults: FaultCost, **other: object) -> FaultCosts:
    return FaultCosts(
        **{
            "faults": faults,
            "reference": 0.98,
            "lost_calls": 3.25,
            "lost_share": 0.0065,
            "failed": 1,
            "tried_again": 1200,
            "wasted_tokens": 43210,
            **other,
        }
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "kill mixed-0 at 2.0 s; 3.2 calls within targets were lost to it, goodput was as"),
        ({"recovery_s": 0.0}, "goodput of those that came then was as before."),
        ({"recovery_s": None}, "goodput was not as before until the next fault or the end."),
        ({"target": "gateway"}, "Fault 1: kill the gateway at 2.0 s"),
        ({"target": None, "happened": False}, "Fault 1, kill: nobody could be hit."),
        ({"at_s": None, "happened": None}, "Fault 1: kill mixed-0 when its event comes."),
        ({"happened": False, "lost_calls": None}, "it had no effect: it was not there to be hit."),
    ],
)
def test_each_fault_has_a_sentence(changes: dict, said: str) -> None:
    first, _in_all = fault_lines(costs(cost(**changes)))
    assert said in first


def test_all_have_one_together() -> None:
    assert fault_lines(costs(cost()))[-1] == (
        "All faults: 3.2 calls within targets lost (0.7 %) against 98.0 % before; "
        "failed: 1 call; tried again: 1,200 calls; computed again for them: 43,210 tokens."
    )
    assert len(fault_lines(costs(cost(), reference=None))) == 1, "none happened"


def test_very_many_are_not_told_one_by_one() -> None:
    lines = fault_lines(costs(*(cost(entry=entry) for entry in range(1, 11))))
    assert [line.split(":")[0] for line in lines[7:]] == [
        "Fault 8",
        "And 2 more faults.",
        "All faults",
    ]
