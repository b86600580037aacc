"""From what a caller wrote to token ids, without holding up the event loop."""

import asyncio
from collections.abc import Sequence

from antiphon.errors import ClientError
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import TokenId

from .chat_schema import Message

LONG_TEXT_CHARS = 16_384
"""From this length on text is tokenized in a thread: it takes milliseconds, and others wait."""


class Prompts:
    """The text side of one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.token_bytes = tokenizer.token_bytes
        self.token_text = tokenizer.token_text

    async def text(self, text: str) -> tuple[TokenId, ...]:
        """Ids of a plain prompt. What spells a special token stays ordinary text."""
        if len(text) >= LONG_TEXT_CHARS:
            return await asyncio.to_thread(self._encode, text)
        return self._encode(text)

    async def text_or_ids(self, prompt: str | list[TokenId], field: str) -> tuple[TokenId, ...]:
        """Ids of a prompt in either form; `field` is what an error calls it."""
        if isinstance(prompt, str):
            return await self.text(prompt)
        self.check_ids(prompt, field)
        return tuple(prompt)

    def check_ids(self, ids: Sequence[TokenId], field: str) -> None:
        """Raises `ClientError` that names the first id outside the vocabulary."""
        size = self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            wrong = next(position for position, id in enumerate(ids) if id >= size)
            name = f"{field}[{wrong}]"
            raise ClientError(f"{name} must be below {size}, the vocabulary's size", field=name)

    async def chat(
        self, messages: Sequence[Message], *, answer_next: bool = True
    ) -> tuple[TokenId, ...]:
        """Ids of a conversation by the model's template, up to where the assistant goes on."""
        turns = [message.rendered() for message in messages]
        if sum(len(turn["content"]) for turn in turns) >= LONG_TEXT_CHARS:
            return await asyncio.to_thread(self._chat, turns, answer_next)
        return self._chat(turns, answer_next)

    def echo(self, prompt: str | list[TokenId]) -> str:
        """The prompt as text."""
        return prompt if isinstance(prompt, str) else self.decode(prompt)

    def decode(self, ids: Sequence[TokenId]) -> str:
        """Text of these ids, specials spelled out."""
        return self._tokenizer.decode(ids, skip_specials=False)

    def _encode(self, text: str) -> tuple[TokenId, ...]:
        return self._tokenizer.encode(text, add_bos=self._tokenizer.add_bos)

    def _chat(self, turns: list[dict[str, str]], answer_next: bool) -> tuple[TokenId, ...]:
        return self._template.encode(self._tokenizer, turns, add_generation_prompt=answer_next)
