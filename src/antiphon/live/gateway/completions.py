"""Text completions in the API's shape, whole and streamed."""

from collections.abc import Callable, Iterator, Sequence

from antiphon.text import ScoredToken
from antiphon.types import TokenId

from .answer_frame import AnswerFrame, ChunkEncoder
from .answers import CompletionLogprobs, TextChoice, finish_name
from .reply import Delta, Reply

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
    return frame.whole(_OBJECT, choices, reply.counts)


class CompletionEncoder(ChunkEncoder[TextChoice]):
    """The streamed answer: text, then the reason it ended. An echoed prompt is the first text."""

    def __init__(self, frame: AnswerFrame, echoed: Sequence[str], include_usage: bool) -> None:
        super().__init__(frame, _OBJECT, include_usage)
        self._echoed = {index: text for index, text in enumerate(echoed) if text}

    def choices(self, delta: Delta) -> Iterator[TextChoice]:
        """See `ChunkEncoder`."""
        index = delta.choice
        prefix = self._echoed.pop(index, "")
        if prefix or delta.pieces or delta.scored:
            yield TextChoice(index, prefix + delta.text, _logprobs(self._frame, delta.scored))
        if finish := finish_name(delta.finish):
            yield TextChoice(index, "", finish_reason=finish)


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
