"""Messages → token ids, by the template that came with the model."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError

from antiphon.errors import ClientError, ModelFileError
from antiphon.types import TokenId

from .special_text import Disguise
from .template_budget import budget
from .template_sandbox import TemplateSandbox
from .tokenizer import Tokenizer

_TEMPLATE_FAILURES = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own code can raise when it meets messages that it was not written for."""

_WORK_FACTOR = 16
"""A rendering may do this many times the work of writing the longest text that it may write."""

_OWN = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token"})
"""Variables that come from the chat and the model."""


class ChatTemplate:
    """A compiled chat template. Immutable; `now` is the clock behind `strftime_now`.

    `source` is None for a model that has no template: encoding then refuses every chat. Raises
    `ModelFileError` if the source does not compile.
    """

    def __init__(
        self,
        source: str | None,
        bos_token: str = "",
        eos_token: str = "",
        *,
        max_chars: int = 4_000_000,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._template = None
        self._max_chars = max_chars
        self._tokens: dict[str, Any] = {
            name: token
            for name, token in (("bos_token", bos_token), ("eos_token", eos_token))
            if token
        }
        if source is None:
            return
        if any("\ud800" <= character <= "\udfff" for character in source):
            raise ModelFileError("chat template", "has a lone surrogate: not valid Unicode")
        environment = TemplateSandbox()
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: now().strftime(str(form))
        try:
            self._template = environment.from_string(source)
        except (*_TEMPLATE_FAILURES, SyntaxError) as error:
            line = getattr(error, "lineno", None)
            where = f"line {line}: " if line else ""
            raise ModelFileError("chat template", f"does not compile: {where}{error}") from error

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[TokenId, ...]:
        """The prompt of a chat; with `add_generation_prompt` it ends where the answer begins.

        `messages` is JSON data; keys whose value is None count as absent. `variables`, JSON data
        too, are what else the template may ask for: `tools`, `documents` (both None unless given),
        `enable_thinking` and whatever its author thought of; a name that the template gets from
        the model or the server is refused (field "chat_template_kwargs"). Only the template's own
        text becomes special tokens: what messages spell stays text, and a prompt without such
        spellings is what tokenizing the rendered template gives. Raises `ClientError` (field
        "messages") when there is no template, or with the message of a template that refuses.
        """
        if self._template is None:
            raise ClientError(
                "this model has no chat template: use /v1/completions", field="messages"
            )
        for name in variables or ():
            if name in _OWN or name in self._template.globals:
                problem = f"{name!r} is not the caller's to set"
                raise ClientError(problem, field="chat_template_kwargs")
        disguise = Disguise(tokenizer.special)
        known = {
            "tools": None,
            "documents": None,
            **_hidden(disguise, dict(variables or {})),
            "messages": _hidden(disguise, [_present(message) for message in messages]),
            "add_generation_prompt": add_generation_prompt,
            **self._tokens,
        }
        try:
            text = self._render(self._template, known)
        except _TEMPLATE_FAILURES as error:
            raise ClientError(
                f"the chat template refuses these messages: {error}", field="messages"
            ) from error
        if not disguise.used:
            return tokenizer.encode(text, specials=True)
        ids: list[TokenId] = []
        for part in tokenizer.special.split(text):
            if isinstance(part, str):
                ids += tokenizer.encode(disguise.reveal(part))
            else:
                ids.append(part)
        return tuple(ids)

    def _render(self, template: Template, known: dict[str, Any]) -> str:
        chunks: list[str] = []
        size = 0
        with budget(self._max_chars * _WORK_FACTOR):
            for chunk in template.generate(known):
                size += len(chunk)
                if size > self._max_chars:
                    raise TemplateError(f"the prompt is longer than {self._max_chars} characters")
                chunks.append(chunk)
        return "".join(chunks)


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _present(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None}


def _hidden(disguise: Disguise, value: Any) -> Any:
    try:
        return disguise.hide(value)
    except RecursionError as error:
        raise ClientError("the messages are nested too deeply", field="messages") from error
