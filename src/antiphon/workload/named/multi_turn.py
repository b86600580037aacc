"""Chats: each question comes some time after the last answer, and repeats all that was said."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.types import Seconds

from ..chance import exponential
from ..context import DEFAULT_CONTEXT, Budget, MaxContext, quoted, room, spare
from ..known_length import known_length
from ..lengths import Lengths, LognormalLength, UniformLength
from ..number_text import duration_text
from ..numbering import numbered
from ..options import Option, check
from ..prompt_text import text
from ..sessions import AnswerOf, Message, Session, Turn

NAME = "multi-turn"
_TURNS = UniformLength(2, 6)
_QUESTION = LognormalLength(100, 100, low=4)
_ANSWER = LognormalLength(200, 150, low=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiTurn:
    """Chats of several turns whose histories hold the real answers.

    The messages of each call are a beginning of the next one's. A chat ends early where its next
    turn would not fit `max_context`. Think times are exponential.
    """

    turns: Annotated[Lengths, Option("questions of a chat", high=1000)] = _TURNS
    question: Annotated[Lengths, Option("tokens of a question")] = _QUESTION
    answer: Annotated[Lengths, Option("tokens of an answer")] = _ANSWER
    think_s: Annotated[
        Seconds, Option("mean time between an answer and the next question", high=86400)
    ] = 5.0
    system: Annotated[int, Option("tokens of a system prompt that all share", high=2**20)] = 64
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, NAME)
        spare(NAME, self._shortest, self._room(0), self.max_context)

    @property
    def description(self) -> str:
        """See `Workload`."""
        return (
            f"{NAME}: chats of {self.turns.text} turns, {duration_text(self.think_s)} apart on "
            f"average, questions of {self.question.text} tokens, answers of {self.answer.text}, "
            f"within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws = Draws(seed)
        return numbered(self._session(seed, draws, number) for number in count())

    def _session(self, seed: int, draws: Draws, number: int) -> Session:
        history: list[Message] = []
        if self.system:
            history.append(Message("system", (text(self.system, seed, NAME, "system"),)))
        turns: list[Turn] = []
        said = 0
        for place in range(self.turns.draw(draws, NAME, number, "turns")):
            here = (NAME, number, place)
            left = self._room(place) - said - self._shortest
            if left < 0:
                break
            budget = Budget(left)
            answer = budget.take(self.answer.draw(draws, *here, "answer"), self.answer.low)
            question = budget.take(self.question.draw(draws, *here, "question"), self.question.low)
            words = text(question, seed, *here)
            turns.append(
                Turn(
                    ask=known_length(words, answer, draws, *here),
                    history=tuple(history),
                    after=(place - 1,) if place else (),
                    pause_s=exponential(self.think_s, draws, *here, "think") if place else 0.0,
                )
            )
            history.append(Message("user", (words,)))
            history.append(Message("assistant", (AnswerOf(place),)))
            said += question + quoted(answer)
        return Session(number=number, turns=tuple(turns), slo_class=NAME)

    @property
    def _shortest(self) -> int:
        """Tokens of the shortest question with the shortest answer."""
        return self.question.low + self.answer.low

    def _room(self, place: int) -> int:
        """For what is said until the end of that turn."""
        return room(self.max_context, 2 * place + 2) - self.system
