"""How a prompt is named on the command line, and what else commands about its KV take."""

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from antiphon.errors import UsageError

from . import options

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCall:
    """Whose blocks of which prompt are meant, and which server is asked how. One command line."""

    text: Text = None
    file: File = None
    tokens: Tokens = None
    chat: Chat = None
    tenant: Tenant = None
    all_tenants: AllTenants = False
    timeout: Timeout = 30.0
    as_json: AsJson = False
    url: options.Url = None
    token_file: options.TokenFile = None

    @property
    def of_everybody(self) -> bool:
        """No tenant was named."""
        return self.tenant is None and not self.all_tenants

    def prompt(self) -> dict[str, Any] | None:
        """The prompt as the admin routes take it; None: none was named.

        Raises `UsageError` if several were, or one can't be read.
        """
        given = {
            "--text": self.text,
            "--file": self.file,
            "--tokens": self.tokens,
            "--chat": self.chat,
        }
        named = [option for option, value in given.items() if value is not None]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} name a prompt each: give one of them")
        if self.text is not None:
            return {"text": self.text}
        if self.file is not None:
            return {"text": _read(self.file, "--file")}
        if self.tokens is not None:
            return {"tokens": _ids(self.tokens)}
        if self.chat is not None:
            return {"chat": _chat(self.chat)}
        return None

    def post(self, deed: str, prompt: dict[str, Any] | None, **more: object) -> Any:
        """The server's answer to an order about the prompt's blocks (None: all of those meant)."""
        from antiphon.live.admin.client import find_server

        order = {
            "prompt": prompt,
            "tenant": self.tenant,
            "all_tenants": self.all_tenants,
            "timeout_s": self.timeout,
            **more,
        }
        server = find_server(self.url, self.token_file)
        return server.post(f"/admin/kv/{deed}", order, self.timeout)

    def post_prompt(self, deed: str, **more: object) -> Any:
        """`post` of the prompt. Raises `UsageError` if none was named."""
        prompt = self.prompt()
        if prompt is None:
            raise UsageError("name a prompt: --text, --file, --tokens or --chat")
        return self.post(deed, prompt, **more)


def takes_kv_call(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all options of `KvCall` in the place of its parameter `call`, whose default
    says theirs."""
    own = inspect.signature(command, eval_str=True).parameters
    usual = own["call"].default
    shared = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(usual, one.name),
            annotation=one.type,
        )
        for one in fields(KvCall)
    ]
    names = {one.name for one in shared}

    def run(**given: Any) -> None:
        call = KvCall(**{name: value for name, value in given.items() if name in names})
        command(call=call, **{name: given[name] for name in given if name not in names})

    others = [one for one in own.values() if one.name != "call"]
    others = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*others, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


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
