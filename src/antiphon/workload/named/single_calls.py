"""Calls that have nothing to do with each other: `fixed`, `chat`, `code`, `summarise`."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws

from ..asks import Api
from ..context import DEFAULT_CONTEXT, MaxContext, check_room, room
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
        check_room(
            self.name,
            self._scaled(self.input.low) + self._scaled(self.output.low),
            self._room,
            self.max_context,
        )

    @property
    def description(self) -> str:
        """See `Workload`."""
        scale = f", both times {self.scale:g}" if self.scale != 1 else ""
        return (
            f"{self.name}: single calls, prompts of {self.input.text} tokens, answers of "
            f"{self.output.text}{scale}, within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws = Draws(seed)
        return numbered(self._session(seed, draws, number) for number in count())

    def _session(self, seed: int, draws: Draws, number: int) -> Session:
        output = self._scaled(self.output.draw(draws, self.name, number, "output"))
        output = min(output, self._room - self._scaled(self.input.low))
        words = self._scaled(self.input.draw(draws, self.name, number, "input"))
        prompt = text(min(words, self._room - output), seed, self.name, number)
        ask = known_length(prompt, output, draws, self.name, number, api=self.api)
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

    @property
    def _room(self) -> int:
        return room(self.max_context, 2) - self._system_tokens

    def _scaled(self, tokens: int) -> int:
        return max(1, round(tokens * self.scale))
