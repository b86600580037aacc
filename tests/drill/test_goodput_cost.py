"""A drill's answers as goodput sees them, and what they are compared with."""

from dataclasses import replace

import pytest

from antiphon.bench import Answer, Choice
from antiphon.core.faults import CallOutcome
from antiphon.drill.goodput_cost import cost_of_faults, outcomes
from antiphon.drill.plan import Load
from antiphon.drill.report import Injected
from antiphon.types import Slo

SLO = Slo(ttft_s=1.0, tpot_s=0.11)
GOOD = Answer(
    number=3,
    due_at=100.0,
    sent_at=100.0,
    ended_at=100.7,
    status=200,
    choices=(Choice("one two", "stop"),),
    token_at=(100.5, 100.6, 100.7),
    completion_tokens=3,
)
FAULT = Injected(
    kind="kill", target="w", role="mixed", pid=7, at_s=20.0, detected_s=0.5, back_s=3.0
)


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, True),
        ({"due_at": 99.0}, False),
        ({"token_at": (100.5, 100.8), "completion_tokens": 2, "ended_at": 100.8}, False),
        ({"token_at": (100.5, 100.8), "completion_tokens": 5, "ended_at": 100.8}, True),
        ({"error": "it broke"}, False),
        ({"status": 503, "choices": (), "token_at": ()}, False),
    ],
)
def test_an_answer_counts_if_it_came_whole_and_in_time(
    change: dict[str, object], met: bool
) -> None:
    (one,) = outcomes([replace(GOOD, **change)], SLO, began_at=90.0)
    assert one.met is met


def test_times_count_from_the_loads_begin_in_order_of_due_times() -> None:
    later = replace(GOOD, due_at=100.2, ended_at=100.9)
    found = outcomes([later, GOOD], SLO, began_at=90.0)
    assert [call.due_at_s for call in found] == pytest.approx([10.0, 10.2])
    assert found[0].ended_at_s == pytest.approx(10.7)


def calls(met: str) -> list[CallOutcome]:
    return [CallOutcome(float(at), at + 0.5, one == ".") for at, one in enumerate(met)]


def reference(met: str, undisturbed: str) -> float:
    found = cost_of_faults(calls(met), [FAULT], Load(), calls(undisturbed))
    assert found is not None
    return found.reference


def test_the_reference_is_the_undisturbed_load_else_what_came_before_else_all() -> None:
    half = ".x" * 20
    assert reference(half, "...x") == 0.75
    assert reference(half, "") == 0.5
    late = [CallOutcome(25.0, 25.5, True)]
    found = cost_of_faults(late, [FAULT], Load(), [])
    assert found is not None
    assert found.reference == 1.0


def test_without_a_fault_nothing_is_said() -> None:
    assert cost_of_faults(calls("...."), [], Load(), []) is None
