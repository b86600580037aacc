"""Questions on documents: retrieval puts some of a shared pool before each question."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

from ..context import DEFAULT_CONTEXT, Budget, MaxContext, room, spare
from ..known_length import known_length
from ..lengths import Lengths, UniformLength
from ..numbering import numbered
from ..options import Option, check
from ..prompt_text import text
from ..sessions import Message, Session, Turn
from ..zipf import Zipf

NAME = "rag"
_DOCUMENT = UniformLength(200, 600)
_QUESTION = UniformLength(10, 40)
_ANSWER = UniformLength(32, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rag:
    """Single calls: a system prompt, `retrieved` documents in the order drawn, a question.

    A document is the same text whoever is given it, but behind other documents: prefix caches can
    use it only where the order is the same too. Popularity is Zipf's. Documents and questions that
    would not fit `max_context` are cut.
    """

    documents: Annotated[int, Option("documents of the pool", low=1, high=100_000)] = 100
    retrieved: Annotated[int, Option("documents for a question", low=1, high=50)] = 3
    zipf: Annotated[float, Option("exponent of popularity; 0: all alike", high=5)] = 1.0
    document: Annotated[Lengths, Option("tokens of a document")] = _DOCUMENT
    question: Annotated[Lengths, Option("tokens of a question")] = _QUESTION
    answer: Annotated[Lengths, Option("tokens of an answer")] = _ANSWER
    system: Annotated[int, Option("tokens of the system prompt", high=2**20)] = 64
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, NAME)
        if self.retrieved > self.documents:
            raise UsageError(
                f"{NAME}: retrieved must be at most documents ({self.documents}), "
                f"not {self.retrieved}"
            )
        self._spare()

    @property
    def description(self) -> str:
        """See `Workload`."""
        return (
            f"{NAME}: questions on {self.retrieved} of {self.documents} shared documents of "
            f"{self.document.text} tokens in random order, popularity Zipf "
            f"{number_text(self.zipf)}, answers "
            f"of {self.answer.text}, within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws, popularity = Draws(seed), Zipf(self.documents, self.zipf)
        return numbered(self._session(seed, draws, popularity, number) for number in count())

    def document_text(self, rank: int, seed: int) -> str:
        """The document of that popularity, 0 the most popular."""
        most = self.document.low + self._spare() // self.retrieved
        words = self.document.draw(Draws(seed), NAME, "document", rank, "tokens")
        return text(min(words, most), seed, NAME, "document", rank)

    def _session(self, seed: int, draws: Draws, popularity: Zipf, number: int) -> Session:
        here, budget = (NAME, number), Budget(self._spare())
        documents: list[str] = []
        for rank in popularity.draw(self.retrieved, draws, *here, "document"):
            documents.append(self.document_text(rank, seed))
            budget.take(len(documents[-1].split()), self.document.low)
        answer = budget.take(self.answer.draw(draws, *here, "answer"), self.answer.low)
        question = budget.take(self.question.draw(draws, *here, "question"), self.question.low)
        words = text(question, seed, NAME, "question", number)
        ask = known_length("\n\n".join([*documents, words]), answer, draws, *here)
        system = (Message("system", (text(self.system, seed, NAME, "system"),)),)
        turn = Turn(ask=ask, history=system if self.system else ())
        return Session(number=number, turns=(turn,), slo_class=NAME)

    def _spare(self) -> int:
        """Beside the shortest of everything; a blank line is a token."""
        needed = self.system + self.retrieved * (self.document.low + 1)
        needed += self.question.low + self.answer.low
        return spare(NAME, needed, room(self.max_context, 2), self.max_context)
