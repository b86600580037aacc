from itertools import islice
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.workload import AnswerOf, Message, Session, parse_workload


def some(text: str, count: int, seed: int = 1) -> list[Session]:
    return list(islice(parse_workload(text).sessions(seed), count))


def messages(session: Session, place: int) -> list[Message]:
    turn = session.turns[place]
    return [*turn.history, Message("user", (turn.ask.text,))]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**40), st.integers(300, 9000), st.integers(0, 100))
def test_the_messages_of_a_turn_are_a_beginning_of_the_next_ones(
    seed: int, context: int, system: int
) -> None:
    for session in some(f"multi-turn:system={system},max_context={context}", 4, seed):
        for place in range(1, len(session.turns)):
            earlier, later = messages(session, place - 1), messages(session, place)
            assert later[: len(earlier)] == earlier
            assert later[len(earlier)] == Message("assistant", (AnswerOf(place - 1),))
            assert len(later) == len(earlier) + 2
            assert session.turns[place].after == (place - 1,)


def test_chats_share_their_system_prompt_and_nothing_else() -> None:
    one, other = some("multi-turn", 2)
    assert one.turns[0].history == other.turns[0].history
    assert one.turns[0].ask.text.split()[:4] != other.turns[0].ask.text.split()[:4]


def test_turns_and_think_times_are_what_was_asked_for() -> None:
    sessions = some("multi-turn:turns=3-5,think=2s", 1000)
    assert {len(session.turns) for session in sessions} == {3, 4, 5}
    pauses = [turn.pause_s for session in sessions for turn in session.turns[1:]]
    assert fmean(pauses) == pytest.approx(2, rel=0.05)
    assert all(session.turns[0].pause_s == 0 for session in sessions)


def test_a_chat_ends_where_its_context_does() -> None:
    sessions = some("multi-turn:turns=50,question=20,answer=30,max_context=1024", 20)
    assert {len(session.turns) for session in sessions} == {len(sessions[0].turns)}
    assert 8 < len(sessions[0].turns) < 20
