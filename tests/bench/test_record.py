"""What the records of a run say all together: whether answers were as long as planned."""

from dataclasses import replace

import pytest

from antiphon.bench.answer import Answer
from antiphon.bench.record import RecordMaker
from antiphon.types import CallError, CallRecord, TokenSource
from antiphon.workload import Ask, Session, Turn

ASK = Ask(number=0, text="hi", max_tokens=8, temperature=0.0, seed=0, ignore_eos=True)
ANSWER = Answer(number=0, due_at=0.0, sent_at=0.0, ended_at=1.0, status=200, token_at=(0.5,))


async def notes(*tokens: int, ask: Ask = ASK, answer: Answer = ANSWER) -> str:
    """What is noted of answers that have so many tokens."""
    records: list[CallRecord] = []
    maker = RecordMaker("m", records.append, None)
    session = Session(number=0, turns=(Turn(ask=ask),))
    for number, count in enumerate(tokens):
        await maker.ended(session, 0, number, replace(answer, completion_tokens=count), ())
    assert [record.output_tokens for record in records] == [*tokens]
    return " ".join(maker.notes())


async def test_answers_shorter_than_planned_are_noted() -> None:
    said = await notes(2, 5, 8)
    assert "planned 8 output tokens, got 5.0 on average" in said
    assert "ignore_eos" in said
    assert "planned 16 output tokens, got 8.0" in await notes(8, ask=replace(ASK, n=2))


@pytest.mark.parametrize("tokens", [(), (8, 8), (8,) * 19 + (1,)])
async def test_answers_as_long_as_planned_are_not(tokens: tuple[int, ...]) -> None:
    assert await notes(*tokens) == ""


async def test_what_says_nothing_of_lengths_is_not_counted() -> None:
    assert await notes(1, ask=replace(ASK, ignore_eos=False)) == ""
    assert await notes(1, answer=replace(ANSWER, failure=CallError.CUT_SHORT)) == ""
    pieces = await notes(1, answer=replace(ANSWER, counted_by=TokenSource.PIECES))
    assert "planned" not in pieces
