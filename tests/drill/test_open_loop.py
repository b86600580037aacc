"""A drill's load comes at its times, and all of its answers are kept."""

import asyncio
from collections.abc import Sequence

import pytest

from antiphon.bench import Answer, Client, Server
from antiphon.drill.open_loop import Arrival, run_open_loop
from antiphon.types import Seconds
from antiphon.workload import Ask, Message


class AnswersAllAtOnce(Client):
    """Nobody is answered before all have asked."""

    def __init__(self, count: int) -> None:
        super().__init__(Server(url="http://127.0.0.1:1"))
        self._all_are_there = asyncio.Barrier(count)

    async def send(
        self, ask: Ask, due_at: Seconds | None = None, history: Sequence[Message] = ()
    ) -> Answer:
        await self._all_are_there.wait()
        assert due_at is not None
        return Answer(number=ask.number, due_at=due_at, sent_at=due_at, ended_at=due_at, status=200)


def arrival(at_s: Seconds, number: int) -> Arrival:
    return Arrival(at_s, Ask(number=number, text="hi", max_tokens=2, temperature=0.0, seed=1))


async def test_nobody_waits_for_the_answers_of_others() -> None:
    heard: list[Answer] = []
    arrivals = [arrival(0.0, 2), arrival(0.0, 0), arrival(0.01, 1)]
    answers = await run_open_loop(AnswersAllAtOnce(3), arrivals, on_answer=heard.append)
    assert [answer.number for answer in answers] == [0, 1, 2]
    assert sorted(heard, key=lambda answer: answer.number) == answers
    assert answers[1].due_at - answers[2].due_at == pytest.approx(0.01)
