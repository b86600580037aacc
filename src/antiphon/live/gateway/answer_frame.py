"""What answers of every kind share: the frame around their choices, whole and streamed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic

from msgspec import UNSET

from antiphon.types import TokenId

from .answers import Answer, Choice, encode, event, usage
from .reply import Delta, TokenCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFrame:
    """What all parts of one answer repeat. `token_bytes` spells a token in log-probabilities."""

    id: str
    created: int
    model: str
    fingerprint: str
    token_bytes: Callable[[TokenId], bytes]

    def around(self, kind: str, choices: list[Choice]) -> Answer[Choice]:
        """These choices in an object of this kind, without a count of tokens."""
        return Answer(self.id, kind, self.created, self.model, self.fingerprint, choices)

    def whole(self, kind: str, choices: list[Choice], counts: TokenCounts) -> bytes:
        """A whole answer in JSON."""
        answer = self.around(kind, choices)
        answer.usage = usage(counts)
        return encode(answer)


class ChunkEncoder(ABC, Generic[Choice]):
    """Implements `event_stream.Encoder`: every part of a choice is a chunk of its own."""

    def __init__(self, frame: AnswerFrame, kind: str, include_usage: bool) -> None:
        self._frame = frame
        self._kind = kind
        self._usage = None if include_usage else UNSET

    @abstractmethod
    def choices(self, delta: Delta) -> Iterable[Choice]:
        """The parts of a choice that this delta brings."""

    def chunks(self, deltas: list[Delta]) -> bytes:
        """See `event_stream.Encoder`."""
        return b"".join(
            event(self._chunk([choice])) for delta in deltas for choice in self.choices(delta)
        )

    def last(self, counts: TokenCounts) -> bytes:
        """See `event_stream.Encoder`: the token counts, if they were asked for."""
        if self._usage is UNSET:
            return b""
        chunk = self._chunk([])
        chunk.usage = usage(counts)
        return event(chunk)

    def _chunk(self, choices: list[Choice]) -> Answer[Choice]:
        chunk = self._frame.around(self._kind, choices)
        chunk.usage = self._usage
        return chunk
