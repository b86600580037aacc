"""The body of `/v1/chat/completions`, and of `/tokenize` when it is given messages."""

from typing import Annotated, Literal

from annotated_types import MaxLen, MinLen
from pydantic import Discriminator, Field, Tag

from antiphon.errors import ClientError

from .schema import Body, GenerationBody, one_or_many

MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_VARIABLES = 32
MAX_VARIABLE_CHARS = 1024


class TextPart(Body):
    """One part of a message. Other kinds (images, audio) are not supported."""

    type: Literal["text"]
    text: str


Content = Annotated[
    Annotated[str, Tag("one")] | Annotated[list[TextPart], MaxLen(MAX_PARTS), Tag("many")],
    Discriminator(
        one_or_many,
        custom_error_type="content_type",
        custom_error_message="Input should be a string or a list of text parts",
    ),
]


class Message(Body):
    """One turn. `developer` is the newer name of `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    name: str | None = Field(None, description="Accepted, without effect.")
    refusal: None = None
    audio: None = None
    tool_calls: Annotated[list[object], MaxLen(0)] | None = None
    function_call: None = None

    def rendered(self) -> dict[str, str]:
        """Role and text as chat templates expect them; parts are joined by a newline."""
        text = (
            self.content
            if isinstance(self.content, str)
            else "\n".join(part.text for part in self.content)
        )
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


Messages = Annotated[list[Message], MinLen(1), MaxLen(MAX_MESSAGES)]

Variables = Annotated[
    dict[
        Annotated[str, MaxLen(64)],
        bool | int | float | Annotated[str, MaxLen(MAX_VARIABLE_CHARS)] | None,
    ],
    MaxLen(MAX_VARIABLES),
]
"""What a chat template may ask for beside the messages, such as `enable_thinking`."""


class ChatBody(GenerationBody):
    """A chat completion."""

    messages: Messages
    max_completion_tokens: int | None = Field(None, description="The newer name of max_tokens.")
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    parallel_tool_calls: bool | None = Field(None, description="Accepted, without effect.")
    chat_template_kwargs: Variables | None = Field(
        None, description="Variables of the model's chat template, such as enable_thinking."
    )

    def output_limit(self) -> tuple[int | None, str]:
        """The output limit (None: what the context allows) and the name it was given by."""
        if self.max_completion_tokens is None:
            return self.max_tokens, "max_tokens"
        if self.max_tokens not in (None, self.max_completion_tokens):
            raise ClientError(
                f"max_tokens is {self.max_tokens} and max_completion_tokens is "
                f"{self.max_completion_tokens}: give one of them",
                field="max_completion_tokens",
            )
        return self.max_completion_tokens, "max_completion_tokens"

    def alternatives(self) -> int | None:
        """Log-probabilities to report beside the chosen token; None: none at all."""
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise ClientError("top_logprobs needs logprobs: true", field="top_logprobs")
        return None
