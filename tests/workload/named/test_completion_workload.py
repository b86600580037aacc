from itertools import islice, pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.workload import Api, Session, parse_workload


def some(text: str, count: int, seed: int = 1) -> list[Session]:
    return list(islice(parse_workload(text).sessions(seed), count))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**40), st.integers(300, 9000))
def test_a_prompt_is_the_last_one_and_what_was_typed_since(seed: int, context: int) -> None:
    for session in some(f"completion:typed=4-40,max_context={context}", 3, seed):
        for earlier, later in pairwise(session.turns):
            assert later.ask.text.startswith(f"{earlier.ask.text} ")
            typed = len(later.ask.text.split()) - len(earlier.ask.text.split())
            assert 4 <= typed <= 40
        assert all(turn.ask.api is Api.COMPLETION and not turn.history for turn in session.turns)
        assert [turn.after for turn in session.turns[1:]] == [
            (place,) for place in range(len(session.turns) - 1)
        ]


def test_files_differ_between_sessions_and_typing_takes_time() -> None:
    sessions = some("completion:pause=3s,calls=5", 500)
    assert {len(session.turns) for session in sessions} == {5}
    assert len({session.turns[0].ask.text[:40] for session in sessions}) == 500
    pauses = [turn.pause_s for session in sessions for turn in session.turns[1:]]
    assert fmean(pauses) == pytest.approx(3, rel=0.06)
