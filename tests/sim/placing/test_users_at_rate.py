"""The same users at another rate, and what closed forms know of them."""

from itertools import islice
from math import inf

import pytest

from antiphon.errors import UsageError
from antiphon.sim.placing import WorkloadUsers, call_shape
from antiphon.workload import parse_workload


def users(text: str) -> WorkloadUsers:
    return WorkloadUsers(parse_workload(text))


def test_a_rate_moves_sessions_and_changes_nothing_of_them() -> None:
    slow, fast = (list(islice(users("chat").sessions(rate, 1, inf), 30)) for rate in (1.0, 4.0))
    assert [one.turns for one in slow] == [one.turns for one in fast]
    assert [one.at_s for one in slow] == pytest.approx([4 * one.at_s for one in fast])
    other = next(users("chat").sessions(1.0, 2, inf))
    assert other.turns != slow[0].turns


def test_sessions_end_with_the_run() -> None:
    found = list(users("fixed:input=10,output=2").sessions(20.0, 1, 5.0))
    assert 60 < len(found) < 150
    assert all(one.at_s < 5.0 for one in found)


def test_the_shape_of_equal_calls_is_their_length() -> None:
    shape = call_shape(users("fixed:input=300,output=20"))
    assert shape.output == shape.late_output == shape.longest_output == 20
    assert shape.input == shape.late_input == pytest.approx(300, abs=8)
    assert shape.longest == shape.late_input + 20
    assert shape.uncached == shape.input


def test_what_is_shared_is_computed_once() -> None:
    alone = call_shape(users("chat"))
    shared = call_shape(users("chat:system=640"))
    assert shared.input == pytest.approx(alone.input + 640, abs=40)
    assert shared.uncached == pytest.approx(alone.uncached, abs=70)


def test_one_prompt_in_ten_is_longer_than_the_late_one() -> None:
    shape = call_shape(users("fixed:input=100/100/100/100/100/100/100/100/100/900,output=4"))
    assert shape.input < 300
    assert shape.late_input in range(95, 110) or shape.late_input > 800


def test_a_file_that_ends_says_so(tmp_path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text('{"prompt": "one two three"}\n' * 3)
    few = users(f"jsonl:{file}")
    with pytest.raises(UsageError, match="only 3 sessions"):
        list(few.sessions(1.0, 1, 1000.0))
