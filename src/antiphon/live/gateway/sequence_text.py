"""The text of one growing sequence: detokenising, stop strings, and where each token starts."""

from antiphon.text import TextDelta, TextStream, Tokenizer
from antiphon.types import Request, Seconds, TokenGenerated

from .reply import ScoredToken


class SequenceText:
    """Feeds one sequence's tokens through a `TextStream`."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self._stream = TextStream(tokenizer, stop=request.sampling.stop, continues=True)
        self._stop_ids = frozenset(request.sampling.stop_token_ids)
        self._min_tokens = request.sampling.min_tokens
        self._ended: TextDelta | None = None
        self.last_token_at: Seconds | None = None

    def push(self, token: TokenGenerated) -> tuple[TextDelta, ScoredToken | None]:
        """The text that is now certain (perhaps none yet), and the token's score if asked for.

        A stop token id that ends the sequence adds no text: like end-of-sequence it is a mark.
        """
        if token.token in self._stop_ids and token.index + 1 >= self._min_tokens:
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
