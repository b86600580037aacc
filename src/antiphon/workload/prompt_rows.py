"""A user's own prompts, one JSON object a line.

    {"prompt": "Why is the sky blue?", "output_tokens": 64}
    {"messages": [{"role": "system", "content": "Be brief."},
                  {"role": "user", "content": "Why?"}], "slo_class": "chat", "at_s": 1.5}

docs/reference/workloads.md lists the fields. Rows with the same `session`, one below the other, are
turns that wait for each other; a message may then be {"role": "assistant", "answer_of": 0}.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from antiphon.errors import UsageError
from antiphon.types import Seconds

from .file_lines import RowError, file_lines, json_object, json_row, whole_number
from .sessions import AnswerOf, Message

ROW_FIELDS = (
    "prompt",
    "messages",
    "max_tokens",
    "output_tokens",
    "at_s",
    "pause_s",
    "slo_class",
    "session",
    "model",
)
_MOST_TOKENS = 2**20
_MOST_S = 1e9
_MOST_MESSAGES = 10_000
_MOST_NAME_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One call. What the line doesn't say is None, or empty."""

    line: int
    text: str
    history: tuple[Message, ...] | None
    """Messages before the text; None: the line has a `prompt`, not `messages`."""
    max_tokens: int | None
    output_tokens: int | None
    at_s: Seconds | None
    pause_s: Seconds
    slo_class: str
    session: str
    model: str | None


def read_prompts(file: Path) -> Iterator[PromptRow]:
    """The rows of a file. Empty lines are passed over.

    Raises `UsageError` naming file, line and field; also if there are no rows.
    """
    rows = 0
    for number, line in enumerate(file_lines(file, "list of prompts"), 1):
        if not line.strip():
            continue
        rows += 1
        try:
            yield _row(number, line)
        except RowError as problem:
            raise UsageError(f"{file}, line {number}: {problem}") from None
    if not rows:
        raise UsageError(f'{file}: has no prompts: give lines such as {{"prompt": "Why?"}}')


def _row(number: int, line: str) -> PromptRow:
    fields = json_row(line)
    for name in fields:
        if name not in ROW_FIELDS:
            raise RowError(name[:40], f"is no field: they are {', '.join(ROW_FIELDS)}")
    if ("prompt" in fields) == ("messages" in fields):
        raise RowError("prompt", "give either prompt or messages")
    if "max_tokens" in fields and "output_tokens" in fields:
        raise RowError("output_tokens", "give either it (exactly so many) or max_tokens (a limit)")
    history, text = None, ""
    if "prompt" in fields:
        text = _text("prompt", fields["prompt"])
    else:
        history, text = _messages(fields["messages"])
    return PromptRow(
        line=number,
        text=text,
        history=history,
        max_tokens=_tokens(fields, "max_tokens"),
        output_tokens=_tokens(fields, "output_tokens"),
        at_s=_time(fields, "at_s"),
        pause_s=_time(fields, "pause_s") or 0.0,
        slo_class=_name(fields, "slo_class") or "",
        session=_name(fields, "session") or "",
        model=_name(fields, "model"),
    )


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise RowError(field, f"must be text that is not empty, not {value!r:.40}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise RowError(field, "must be valid Unicode, without lone surrogates")
    return value


def _messages(value: object) -> tuple[tuple[Message, ...], str]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_MESSAGES:
        raise RowError("messages", f"must be a list of 1 to {_MOST_MESSAGES} messages")
    messages = [_message(f"messages[{place}]", one) for place, one in enumerate(value)]
    last = messages[-1]
    if last.role != "user" or not isinstance(last.parts[0], str):
        raise RowError("messages", 'the last one must be the user\'s: {"role": "user", …}')
    return tuple(messages[:-1]), last.parts[0]


def _message(where: str, value: object) -> Message:
    fields = json_object(where, value)
    role = _text(f"{where}.role", fields.get("role"))
    if fields.keys() == {"role", "answer_of"}:
        answer_of = fields["answer_of"]
        if not isinstance(answer_of, int) or isinstance(answer_of, bool) or answer_of < 0:
            raise RowError(f"{where}.answer_of", "must be the number of an earlier row, from 0 on")
        return Message(role, (AnswerOf(answer_of),))
    if fields.keys() != {"role", "content"}:
        raise RowError(where, "must have a role, and content (text) or answer_of, and no more")
    return Message(role, (_text(f"{where}.content", fields["content"]),))


def _tokens(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    return whole_number(name, value, low=1, high=_MOST_TOKENS)


def _time(fields: dict[str, object], name: str) -> Seconds | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST_S:
        raise RowError(name, f"must be seconds from 0 on, not {value!r:.40}")
    return float(value)


def _name(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and name == "session":
        value = str(value)
    if value is None:
        return None
    text = _text(name, value)
    if len(text) > _MOST_NAME_CHARS:
        raise RowError(name, f"must have at most {_MOST_NAME_CHARS} characters")
    return text
