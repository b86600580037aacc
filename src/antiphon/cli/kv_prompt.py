"""How a prompt is named on the command line, for commands about its KV."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from antiphon.errors import UsageError

Text: TypeAlias = Annotated[
    str | None,
    typer.Option("--text", help="The prompt, as /v1/completions takes it.", metavar="TEXT"),
]
File: TypeAlias = Annotated[
    Path | None,
    typer.Option("--file", help="File that holds such a prompt; - is stdin.", metavar="FILE"),
]
Tokens: TypeAlias = Annotated[
    str | None,
    typer.Option("--tokens", help="The prompt as token ids, such as 1,2,3.", metavar="LIST"),
]
Chat: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--chat",
        help="JSON file of a chat, as /v1/chat/completions takes it; - is stdin.",
        metavar="FILE",
    ),
]
Tenant: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--tenant",
        help="Whose blocks: the place of an API key in its file, from 1.",
        metavar="N",
        min=1,
    ),
]
AllTenants: TypeAlias = Annotated[
    bool, typer.Option("--all-tenants", help="The blocks of every API key's tenant.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Timeout: TypeAlias = Annotated[
    float,
    typer.Option(
        "--timeout", help="How long the store may take.", metavar="SECONDS", min=0.001, max=86400.0
    ),
]


def prompt_of(
    text: str | None, file: Path | None, tokens: str | None, chat: Path | None
) -> dict[str, Any] | None:
    """The prompt as the admin routes take it; None: none was named.

    Raises `UsageError` if several were, or one can't be read.
    """
    given = {"--text": text, "--file": file, "--tokens": tokens, "--chat": chat}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name a prompt each: give one of them")
    if text is not None:
        return {"text": text}
    if file is not None:
        return {"text": _read(file, "--file")}
    if tokens is not None:
        return {"tokens": _ids(tokens)}
    if chat is not None:
        return {"chat": _chat(chat)}
    return None


def need(prompt: dict[str, Any] | None) -> dict[str, Any]:
    """The prompt. Raises `UsageError` if none was named."""
    if prompt is None:
        raise UsageError("name a prompt: --text, --file, --tokens or --chat")
    return prompt


def _ids(text: str) -> list[int]:
    try:
        ids = [int(part) for part in text.strip().strip("[]").split(",")]
    except ValueError:
        raise UsageError(f'--tokens "{text[:40]}": must be numbers such as 1,2,3') from None
    if min(ids) < 0:
        raise UsageError(f"--tokens: {min(ids)} is no token id")
    return ids


def _chat(file: Path) -> dict[str, Any]:
    try:
        body = json.loads(_read(file, "--chat"))
    except ValueError as error:
        raise UsageError(f"--chat {file}: is no JSON ({error})") from None
    if isinstance(body, list):
        body = {"messages": body}
    if not isinstance(body, dict) or "messages" not in body:
        raise UsageError(f'--chat {file}: must be an object with "messages", or their list')
    return {"model": "", **body}


def _read(file: Path, option: str) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {file}: can't be read ({error})") from None
