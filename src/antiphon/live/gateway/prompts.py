"""From what a caller wrote to token ids, without holding up the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from antiphon.errors import ClientError
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import TokenId

from .chat_schema import Message

Result = TypeVar("Result")

LONG_TEXT_CHARS = 16_384
"""From this length on text is worked on in a thread: it takes milliseconds, and others wait."""


class Prompts:
    """The text side of one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._threads = 0
        self.token_bytes = tokenizer.token_bytes
        self.token_text = tokenizer.token_text

    async def texts(self, texts: Sequence[str]) -> list[tuple[TokenId, ...]]:
        """Ids of plain prompts. What spells a special token stays ordinary text."""
        return await self._run(
            sum(map(len, texts)),
            lambda: [self._tokenizer.encode(t, add_bos=self._tokenizer.add_bos) for t in texts],
        )

    async def chat(
        self, messages: Sequence[Message], *, answer_next: bool = True
    ) -> tuple[TokenId, ...]:
        """Ids of a conversation by the model's template, up to where the assistant goes on."""
        turns = [message.rendered() for message in messages]
        return await self._run(
            sum(len(turn["content"]) for turn in turns),
            lambda: self._template.encode(
                self._tokenizer, turns, add_generation_prompt=answer_next
            ),
        )

    async def decode(self, ids: Sequence[TokenId]) -> str:
        """Text of these ids, specials spelled out."""
        return await self._run(len(ids), lambda: self._tokenizer.decode(ids, skip_specials=False))

    def check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        """Raises `ClientError` that names the first id outside the vocabulary."""
        size = self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            wrong = next(position for position, id in enumerate(ids) if id >= size)
            name = f"{field}[{wrong}]"
            raise ClientError(f"{name} must be below {size}, the vocabulary's size", field=name)

    async def _run(self, length: int, work: Callable[[], Result]) -> Result:
        """Do short work here and long work in a thread.

        A tokenizer works for one caller at a time, so while one is at it in a thread, short work
        must not wait for it on the event loop either.
        """
        if length < LONG_TEXT_CHARS and not self._threads:
            return work()
        self._threads += 1
        try:
            return await asyncio.to_thread(work)
        finally:
            self._threads -= 1
