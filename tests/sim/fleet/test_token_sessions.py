"""Sessions of a workload as tokens."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.kv import BlockKeys
from antiphon.sim.fleet.token_sessions import (
    EOS,
    VOCAB_SIZE,
    answer_tokens,
    packed,
    token_sessions,
)
from antiphon.workload import AnswerOf, Poisson, parse_workload, timed


def test_a_word_is_a_token_and_equal_text_is_equal_tokens() -> None:
    chats = parse_workload("chat:input=50,output=5,system=20")
    one, two = islice(token_sessions(timed(chats, Poisson(1.0), seed=1)), 2)
    assert one.slo_class == "chat"
    system, text = one.turns[0].parts
    assert (len(system), len(text)) == (20, 50)  # type: ignore[arg-type]
    assert two.turns[0].parts[0] == system
    assert two.turns[0].parts[1] != text
    assert one.turns[0].output_tokens == 5
    again = next(token_sessions(timed(chats, Poisson(1.0), seed=1)))
    assert again == one


def test_later_turns_quote_answers() -> None:
    chats = parse_workload("multi-turn:turns=3")
    session = next(token_sessions(timed(chats, Poisson(1.0), seed=1)))
    assert [turn.after for turn in session.turns] == [(), (0,), (1,)]
    assert [part for part in session.turns[2].parts if isinstance(part, AnswerOf)] == [
        AnswerOf(0),
        AnswerOf(1),
    ]


def test_answers_differ_never_end_early_and_are_as_long_as_wanted() -> None:
    answers = [answer_tokens(number, turn, 200_000) for number in range(3) for turn in range(2)]
    assert len(set(answers)) == 6
    for answer in answers:
        assert len(answer) == 200_000
        assert all(EOS < token < VOCAB_SIZE for token in answer)
    assert answer_tokens(1, 1, 10) == answer_tokens(1, 1, 50)[:10]
    assert answer_tokens(1, 1, 0) == ()


@given(st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=40), st.integers(0, 5))
def test_a_packed_prompt_has_the_names_and_the_parts_of_its_tokens(
    tokens: list[int], begin: int
) -> None:
    whole = packed(tokens)
    assert tuple(whole) == tuple(tokens)
    assert (whole[begin], tuple(whole[begin : begin + 3])) == (
        tokens[begin],
        tuple(tokens[begin : begin + 3]),
    )
    keys = BlockKeys(identity=bytes(32), numerics="any", block_tokens=4)
    ours: list[bytes] = []
    theirs: list[bytes] = []
    keys.extend(ours, packed(tokens), len(tokens) // 4)
    keys.extend(theirs, tuple(tokens), len(tokens) // 4)
    assert ours == theirs
    assert keys.key(None, whole[:4]) == keys.key(None, tuple(tokens[:4]))
