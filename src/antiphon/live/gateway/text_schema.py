"""Bodies and answers of `/tokenize` and `/detokenize` (vLLM's shape)."""

from typing import Annotated

from annotated_types import MaxLen
from pydantic import BaseModel

from antiphon.errors import ClientError

from .chat_schema import Messages, Variables
from .schema import Body, TokenIds

MAX_IDS = 1_000_000


class TokenizeBody(Body):
    """Text or messages (exactly one of them) to token ids."""

    model: Annotated[str, MaxLen(512)] | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: Variables | None = None
    return_token_strs: bool = False

    def check(self) -> None:
        """Raises `ClientError` unless exactly one of prompt and messages is given."""
        if (self.prompt is None) == (self.messages is None):
            raise ClientError("give either prompt or messages", field="prompt")


class DetokenizeBody(Body):
    """Token ids to text."""

    model: Annotated[str, MaxLen(512)] | None = None
    tokens: Annotated[TokenIds, MaxLen(MAX_IDS)]


class TokenizeReply(BaseModel):
    """What `/tokenize` answers."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeReply(BaseModel):
    """What `/detokenize` answers."""

    prompt: str
