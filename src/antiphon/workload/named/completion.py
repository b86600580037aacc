"""Completion in an editor: a file is sent again and again, each time a little longer."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.types import Seconds

from ..asks import Api
from ..chance import exponential
from ..context import DEFAULT_CONTEXT, MaxContext, room, spare
from ..known_length import known_length
from ..lengths import Lengths, LognormalLength, UniformLength
from ..number_text import duration_text
from ..numbering import numbered
from ..options import Option, check
from ..prompt_text import words
from ..sessions import Session, Turn

NAME = "completion"
_FILE = LognormalLength(800, 800, low=50)
_CALLS = UniformLength(3, 12)
_TYPED = UniformLength(4, 40)
_OUTPUT = UniformLength(8, 48)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Sessions of one file: each prompt is the last one and what was typed since.

    Sent to the completion API. Pauses for typing are exponential. Files are cut, and sessions end
    early, where calls would not fit `max_context`.
    """

    file: Annotated[Lengths, Option("tokens of the file at first")] = _FILE
    calls: Annotated[Lengths, Option("completions in a session", high=200)] = _CALLS
    typed: Annotated[Lengths, Option("tokens typed between two completions")] = _TYPED
    output: Annotated[Lengths, Option("tokens of a completion")] = _OUTPUT
    pause_s: Annotated[
        Seconds, Option("mean time from a completion to the next call", high=86400)
    ] = 2.0
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, NAME)
        spare(NAME, self.file.low + self.output.low, self._room, self.max_context)

    @property
    def description(self) -> str:
        """See `Workload`."""
        return (
            f"{NAME}: files of {self.file.text} tokens, {self.calls.text} completions of "
            f"{self.output.text} each, {self.typed.text} tokens typed in "
            f"{duration_text(self.pause_s)} between them, within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws = Draws(seed)
        return numbered(self._session(seed, draws, number) for number in count())

    def _session(self, seed: int, draws: Draws, number: int) -> Session:
        length = self.file.draw(draws, NAME, number, "file")
        length = min(length, self._room - self.output.low)
        lengths = [length]
        for place in range(1, self.calls.draw(draws, NAME, number, "calls")):
            length += self.typed.draw(draws, NAME, number, place, "typed")
            if length + self.output.low > self._room:
                break
            lengths.append(length)
        file = words(lengths[-1], seed, NAME, number)
        turns: list[Turn] = []
        for place, length in enumerate(lengths):
            output = self.output.draw(draws, NAME, number, place, "output")
            output = min(output, self._room - length)
            prompt = " ".join(file[:length])
            ask = known_length(prompt, output, draws, NAME, number, place, api=Api.COMPLETION)
            pause_s = exponential(self.pause_s, draws, NAME, number, place, "pause")
            turns.append(
                Turn(ask=ask, after=(place - 1,), pause_s=pause_s) if place else Turn(ask=ask)
            )
        return Session(number=number, turns=tuple(turns), slo_class=NAME)

    @property
    def _room(self) -> int:
        return room(self.max_context, 1)
