"""Chat completions in the API's shape, whole and streamed."""

from collections.abc import Iterator

from antiphon.text import ScoredToken

from .answer_frame import AnswerFrame, ChunkEncoder
from .answers import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    TokenLogprob,
    TopLogprob,
    finish_name,
)
from .reply import Delta, Reply


def chat_answer(frame: AnswerFrame, reply: Reply, choices: int) -> bytes:
    """The whole answer. `reply` is over and without error."""
    deltas = {delta.choice: delta for delta in reply.take()}
    return frame.whole(
        "chat.completion",
        [
            ChatChoice(
                index,
                ChatMessage("assistant", deltas[index].text),
                _logprobs(frame, deltas[index].scored),
                finish_name(deltas[index].finish),
            )
            for index in range(choices)
        ],
        reply.counts,
    )


class ChatEncoder(ChunkEncoder[ChatChunkChoice]):
    """The streamed answer: role first, then text, then the reason it ended, each its own chunk."""

    def __init__(self, frame: AnswerFrame, choices: int, include_usage: bool) -> None:
        super().__init__(frame, "chat.completion.chunk", include_usage)
        self._unborn = set(range(choices))

    def choices(self, delta: Delta) -> Iterator[ChatChunkChoice]:
        """See `ChunkEncoder`."""
        index = delta.choice
        if index in self._unborn:
            self._unborn.remove(index)
            yield ChatChunkChoice(index, ChatDelta("assistant", ""))
        if delta.pieces or delta.scored:
            logprobs = _logprobs(self._frame, delta.scored)
            yield ChatChunkChoice(index, ChatDelta(content=delta.text), logprobs)
        if finish := finish_name(delta.finish):
            yield ChatChunkChoice(index, ChatDelta(), finish_reason=finish)


def _logprobs(frame: AnswerFrame, scored: list[ScoredToken]) -> ChatLogprobs | None:
    if not scored:
        return None
    return ChatLogprobs([_token_logprob(frame, token) for token in scored])


def _token_logprob(frame: AnswerFrame, scored: ScoredToken) -> TokenLogprob:
    raw = frame.token_bytes(scored.token)
    top: list[TopLogprob] = []
    for token, logprob in scored.logprobs.top:
        spelled = frame.token_bytes(token)
        top.append(TopLogprob(spelled.decode("utf-8", "replace"), logprob, list(spelled)))
    text = raw.decode("utf-8", "replace")
    return TokenLogprob(text, scored.logprobs.chosen, list(raw), top)
