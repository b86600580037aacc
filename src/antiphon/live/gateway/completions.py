"""Text completions in the API's shape, whole and streamed."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import UNSET

from antiphon.text import ScoredToken
from antiphon.types import TokenId

from .answers import Answer, CompletionLogprobs, TextChoice, encode, event, finish_name, usage
from .chat import AnswerFrame
from .reply import Delta, Reply, TokenCounts

_OBJECT = "text_completion"


def completion_answer(frame: AnswerFrame, reply: Reply, echoed: Sequence[str]) -> bytes:
    """The whole answer. `echoed[i]` goes before choice i; `reply` is over and without error."""
    deltas = {delta.choice: delta for delta in reply.take()}
    choices = [
        TextChoice(
            index,
            prefix + deltas[index].text,
            _logprobs(frame, deltas[index].scored),
            finish_name(deltas[index].finish),
        )
        for index, prefix in enumerate(echoed)
    ]
    return encode(
        Answer(
            frame.id,
            _OBJECT,
            frame.created,
            frame.model,
            frame.fingerprint,
            choices,
            usage(reply.counts),
        )
    )


class CompletionEncoder:
    """The streamed answer: text, then the reason it ended. An echoed prompt is the first text."""

    def __init__(self, frame: AnswerFrame, echoed: Sequence[str], include_usage: bool) -> None:
        self._frame = frame
        self._echoed = {index: text for index, text in enumerate(echoed) if text}
        self._usage = None if include_usage else UNSET

    def chunks(self, deltas: list[Delta]) -> bytes:
        """See `event_stream.Encoder`."""
        return b"".join(
            event(self._chunk([choice])) for delta in deltas for choice in self._choices(delta)
        )

    def last(self, counts: TokenCounts) -> bytes:
        """See `event_stream.Encoder`: the token counts, if they were asked for."""
        if self._usage is UNSET:
            return b""
        chunk = self._chunk([])
        chunk.usage = usage(counts)
        return event(chunk)

    def _choices(self, delta: Delta) -> Iterator[TextChoice]:
        index = delta.choice
        prefix = self._echoed.pop(index, "")
        if prefix or delta.pieces or delta.scored:
            yield TextChoice(index, prefix + delta.text, _logprobs(self._frame, delta.scored))
        if finish := finish_name(delta.finish):
            yield TextChoice(index, "", finish_reason=finish)

    def _chunk(self, choices: list[TextChoice]) -> Answer[TextChoice]:
        frame = self._frame
        return Answer(
            frame.id, _OBJECT, frame.created, frame.model, frame.fingerprint, choices, self._usage
        )


def _logprobs(frame: AnswerFrame, scored: list[ScoredToken]) -> CompletionLogprobs | None:
    if not scored:
        return None

    def spelled(token: TokenId) -> str:
        return frame.token_bytes(token).decode("utf-8", "replace")

    return CompletionLogprobs(
        [spelled(entry.token) for entry in scored],
        [entry.logprobs.chosen for entry in scored],
        [_top(entry, spelled) for entry in scored],
        [entry.offset for entry in scored],
    )


def _top(entry: ScoredToken, spelled: Callable[[TokenId], str]) -> dict[str, float]:
    top = {spelled(token): logprob for token, logprob in reversed(entry.logprobs.top)}
    top.setdefault(spelled(entry.token), entry.logprobs.chosen)
    return dict(sorted(top.items(), key=lambda pair: (-pair[1], pair[0])))
