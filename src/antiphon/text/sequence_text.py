"""The text of one growing sequence: detokenising, stop strings, and where each token starts."""

from dataclasses import dataclass

from antiphon.core.end_marks import EndMarks
from antiphon.types import Logprobs, Request, Seconds, TokenGenerated, TokenId

from .text_stream import TextDelta, TextStream
from .tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """An output token with its log-probabilities. `offset`: where its text starts in the choice."""

    token: TokenId
    logprobs: Logprobs
    offset: int


class SequenceText:
    """Feeds one sequence's tokens through a `TextStream`. Mutable: one object a sequence.

    Server and Python API both use it, so the same tokens are the same text in both.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self._stream = TextStream(tokenizer, stop=request.sampling.stop, continues=True)
        self._marks = EndMarks.of(request)
        self._ended: TextDelta | None = None
        self.last_token_at: Seconds | None = None

    def push(self, token: TokenGenerated) -> tuple[TextDelta, ScoredToken | None]:
        """The text that is now certain (perhaps none yet), and the token's score if asked for.

        A token that ends the sequence adds no text of its own: it is a mark.
        """
        if self._marks.end(token.token, token.index + 1):
            delta = self.finish()
        else:
            delta = self._stream.push(token.token)
        scored = None
        if token.logprobs is not None:
            scored = ScoredToken(token.token, token.logprobs, delta.offset)
        return delta, scored

    def finish(self) -> TextDelta:
        """The sequence is over: what was held back goes out, once."""
        if self._ended is not None:
            return self._ended
        last = self._stream.finish()
        self._ended = TextDelta("", last.stopped, last.offset)
        return last
