"""Chat completions in the API's shape, whole and streamed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec import UNSET

from antiphon.text import ScoredToken
from antiphon.types import TokenId

from .answers import (
    Answer,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    TokenLogprob,
    TopLogprob,
    encode,
    event,
    finish_name,
    usage,
)
from .reply import Delta, Reply, TokenCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFrame:
    """What all parts of one answer repeat. `token_bytes` spells a token in log-probabilities."""

    id: str
    created: int
    model: str
    fingerprint: str
    token_bytes: Callable[[TokenId], bytes]


def chat_answer(frame: AnswerFrame, reply: Reply, choices: int) -> bytes:
    """The whole answer. `reply` is over and without error."""
    deltas = {delta.choice: delta for delta in reply.take()}
    answer = Answer(
        frame.id,
        "chat.completion",
        frame.created,
        frame.model,
        frame.fingerprint,
        [
            ChatChoice(
                index,
                ChatMessage("assistant", deltas[index].text),
                _logprobs(frame, deltas[index].scored),
                finish_name(deltas[index].finish),
            )
            for index in range(choices)
        ],
        usage(reply.counts),
    )
    return encode(answer)


class ChatEncoder:
    """The streamed answer: role first, then text, then the reason it ended, each its own chunk."""

    def __init__(self, frame: AnswerFrame, choices: int, include_usage: bool) -> None:
        self._frame = frame
        self._unborn = set(range(choices))
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

    def _choices(self, delta: Delta) -> Iterator[ChatChunkChoice]:
        index = delta.choice
        if index in self._unborn:
            self._unborn.remove(index)
            yield ChatChunkChoice(index, ChatDelta("assistant", ""))
        if delta.pieces or delta.scored:
            logprobs = _logprobs(self._frame, delta.scored)
            yield ChatChunkChoice(index, ChatDelta(content=delta.text), logprobs)
        if finish := finish_name(delta.finish):
            yield ChatChunkChoice(index, ChatDelta(), finish_reason=finish)

    def _chunk(self, choices: list[ChatChunkChoice]) -> Answer[ChatChunkChoice]:
        frame = self._frame
        return Answer(
            frame.id,
            "chat.completion.chunk",
            frame.created,
            frame.model,
            frame.fingerprint,
            choices,
            self._usage,
        )


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
