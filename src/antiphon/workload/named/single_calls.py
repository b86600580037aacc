"""Calls that have nothing to do with each other: `fixed`, `chat`, `code`, `summarise`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text

from ..asks import Api
from ..context import DEFAULT_CONTEXT, Budget, MaxContext, room, spare
from ..known_length import known_length
from ..lengths import Lengths
from ..numbering import numbered
from ..options import Option, check
from ..prompt_text import text
from ..sessions import Message, Session, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleCalls:
    """Sessions of one call. Only what `system` says is shared between prompts.

    `scale` multiplies both lengths. What would not fit `max_context` is cut: outputs to what the
    shortest prompt leaves, then prompts to what the output leaves.
    """

    name: str
    input: Annotated[Lengths, Option("tokens of a prompt")]
    output: Annotated[Lengths, Option("tokens of an answer")]
    scale: Annotated[float, Option("what both lengths are multiplied by", low=0.001, high=1000)] = (
        1.0
    )
    system: Annotated[
        int, Option("tokens of a system prompt that all share; chat only", high=2**20)
    ] = 0
    api: Annotated[Api, Option("route of the OpenAI API: chat or completion")] = Api.CHAT
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, self.name)
        self._spare()

    @property
    def description(self) -> str:
        """See `Workload`."""
        scale = f", both times {number_text(self.scale)}" if self.scale != 1 else ""
        return (
            f"{self.name}: single calls, prompts of {self.input.text} tokens, answers of "
            f"{self.output.text}{scale}, within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws = Draws(seed)
        return numbered(self._session(seed, draws, number) for number in count())

    def _session(self, seed: int, draws: Draws, number: int) -> Session:
        budget, here = Budget(self._spare()), (self.name, number)
        output = self._take(budget, self.output, draws, *here, "output")
        words = self._take(budget, self.input, draws, *here, "input")
        prompt = text(words, seed, *here)
        ask = known_length(prompt, output, draws, *here, api=self.api)
        return Session(
            number=number,
            turns=(Turn(ask=ask, history=self._history(seed)),),
            slo_class=self.name,
        )

    def _history(self, seed: int) -> tuple[Message, ...]:
        if not self._system_tokens:
            return ()
        return (Message("system", (text(self._system_tokens, seed, self.name, "system"),)),)

    @property
    def _system_tokens(self) -> int:
        return self.system if self.api is Api.CHAT else 0

    def _spare(self) -> int:
        needed = self._scaled(self.input.low) + self._scaled(self.output.low) + self._system_tokens
        return spare(self.name, needed, room(self.max_context, 2), self.max_context)

    def _take(self, budget: Budget, lengths: Lengths, draws: Draws, *purpose: str | int) -> int:
        drawn = self._scaled(lengths.draw(draws, *purpose))
        return budget.take(drawn, self._scaled(lengths.low))

    def _scaled(self, tokens: int) -> int:
        return max(1, round(tokens * self.scale))
