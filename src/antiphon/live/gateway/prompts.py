"""From what a caller wrote to token ids, without holding up the event loop.

Long text is worked on in a thread, and the tokenizer lets the loop run meanwhile. Text that can't
fit the context, however its tokens turn out, is refused before any of that work.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from antiphon.core.validation import check_prompt_len
from antiphon.errors import ClientError
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import TokenId

from .chat_schema import Message, Variables

Result = TypeVar("Result")

LONG_TEXT_CHARS = 16_384
"""From this length on text is worked on in a thread: it takes milliseconds, and others wait."""


class Prompts:
    """The text side of one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.token_bytes = tokenizer.token_bytes

    async def texts(
        self, texts: Sequence[str], *, max_model_len: int | None = None
    ) -> list[tuple[TokenId, ...]]:
        """Ids of plain prompts. What spells a special token stays ordinary text.

        Raises `ClientError` for a text that must be longer than `max_model_len` tokens.
        """
        for text in texts:
            self._check_size([text], "prompt", max_model_len)
        return await _run(
            sum(map(len, texts)),
            lambda: [self._tokenizer.encode(t, add_bos=self._tokenizer.add_bos) for t in texts],
        )

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        answer_next: bool = True,
        variables: Variables | None = None,
        max_model_len: int | None = None,
    ) -> tuple[TokenId, ...]:
        """Ids of a conversation by the model's template, up to where the assistant goes on.

        `variables` are the template's, beside the messages. Raises `ClientError` for messages that
        must be longer than `max_model_len` tokens, counting the blanks that a template may strip.
        """
        turns = [message.rendered() for message in messages]
        self._check_size((turn["content"] for turn in turns), "messages", max_model_len)
        return await _run(
            sum(len(turn["content"]) for turn in turns),
            lambda: self._template.encode(
                self._tokenizer, turns, add_generation_prompt=answer_next, variables=variables
            ),
        )

    async def decode(self, ids: Sequence[TokenId]) -> str:
        """Text of these ids, specials spelled out."""
        return await _run(len(ids), lambda: self._tokenizer.decode(ids, skip_specials=False))

    async def spell(self, ids: Sequence[TokenId]) -> list[str]:
        """Each of these ids alone as text, specials spelled out."""
        return await _run(len(ids), lambda: [self._tokenizer.token_text(id) for id in ids])

    def check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        """Raises `ClientError` that names the first id outside the vocabulary."""
        size = self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            wrong = next(position for position, id in enumerate(ids) if id >= size)
            name = f"{field}[{wrong}]"
            raise ClientError(f"{name} must be below {size}, the vocabulary's size", field=name)

    def _check_size(self, texts: Iterable[str], field: str, max_model_len: int | None) -> None:
        if max_model_len is not None:
            size_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
            fewest = self._tokenizer.fewest_tokens(size_bytes)
            check_prompt_len(fewest, max_model_len=max_model_len, exact=False, field=field)


async def _run(length: int, work: Callable[[], Result]) -> Result:
    """Do short work here and long work in a thread."""
    return work() if length < LONG_TEXT_CHARS else await asyncio.to_thread(work)
