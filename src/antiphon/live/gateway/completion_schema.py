"""The body of `/v1/completions`."""

from typing import Annotated

from annotated_types import MaxLen, MinLen
from pydantic import Discriminator, Field, Tag

from antiphon.core.validation import DEFAULT_MAX_TOKENS
from antiphon.errors import ClientError

from .schema import MAX_PROMPTS, GenerationBody, TokenIds


def _prompt_form(value: object) -> str | None:
    match value:
        case str():
            return "text"
        case [str(), *_]:
            return "texts"
        case [list(), *_]:
            return "id_lists"
        case list():
            return "ids"
        case _:
            return None


Prompt = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[list[str], MaxLen(MAX_PROMPTS), Field(fail_fast=True), Tag("texts")]
    | Annotated[TokenIds, MinLen(1), Tag("ids")]
    | Annotated[
        list[Annotated[TokenIds, MinLen(1)]],
        MaxLen(MAX_PROMPTS),
        Field(fail_fast=True),
        Tag("id_lists"),
    ],
    Discriminator(
        _prompt_form,
        custom_error_type="prompt_type",
        custom_error_message="Input should be a string, a list of strings, a list of token ids or "
        "a list of lists of token ids",
    ),
]


class CompletionBody(GenerationBody):
    """A completion of one or several prompts."""

    prompt: Prompt
    max_tokens: int | None = Field(
        None, description=f"Without it: {DEFAULT_MAX_TOKENS}, or what the context has room for."
    )
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def texts(self) -> list[str]:
        """The prompts that are text: all of them or none."""
        match self.prompt:
            case str() as text:
                return [text]
            case many:
                return [text for text in many if isinstance(text, str)]

    def ids(self) -> dict[str, list[int]]:
        """The prompts that are token ids, all or none, by what an error calls each of them."""
        match self.prompt:
            case str():
                return {}  # and not the ids among its characters, of which there may be millions
            case [int(), *_]:
                return {"prompt": [id for id in self.prompt if isinstance(id, int)]}
            case many:
                return {f"prompt[{i}]": ids for i, ids in enumerate(many) if isinstance(ids, list)}

    def check(self) -> None:
        """What the fields may not say together. Raises `ClientError`."""
        if self.echo and self.logprobs is not None:
            raise ClientError(
                "echo together with logprobs is not supported yet: the log-probabilities of the "
                "prompt's tokens are not kept",
                field="echo",
            )
