from dataclasses import replace

import pytest

from antiphon.bench import Answer, Choice
from antiphon.drill.verdict import Fault, judge

GOOD = Answer(
    number=3,
    due_at=0.0,
    sent_at=0.0,
    ended_at=1.0,
    status=200,
    choices=(Choice("one two three", "stop"), Choice("four", "length")),
    prompt_tokens=5,
    completion_tokens=9,
)


def test_the_same_answer_is_found_good_whenever_it_came() -> None:
    assert judge([replace(GOOD, ended_at=9.0, token_at=(1.0, 2.0))], {3: GOOD}) == ()


@pytest.mark.parametrize(
    ("change", "fault", "says"),
    [
        ({"error": "HTTP 500"}, Fault.FAILED, "HTTP 500"),
        ({"status": 503}, Fault.FAILED, "503"),
        ({"choices": (Choice("one two three", None), GOOD.choices[1])}, Fault.FAILED, "None"),
        ({"choices": ()}, Fault.FAILED, "ends"),
        (
            {"choices": (Choice("one two two three", "stop"), GOOD.choices[1])},
            Fault.WRONG,
            "choice 0 differs at character 9",
        ),
        (
            {"choices": (Choice("one two", "stop"), GOOD.choices[1])},
            Fault.WRONG,
            "at character 7: '' instead of ' three'",
        ),
        (
            {"choices": (Choice("one two three", "length"), GOOD.choices[1])},
            Fault.WRONG,
            "instead of ['stop', 'length']",
        ),
        ({"completion_tokens": 10}, Fault.WRONG, "(5, 10)"),
        ({"prompt_tokens": 6}, Fault.WRONG, "(6, 9)"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], fault: Fault, says: str) -> None:
    (finding,) = judge([replace(GOOD, **change)], {3: GOOD})
    assert finding.number == 3
    assert finding.fault is fault
    assert says in finding.message
