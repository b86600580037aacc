"""`antiphon kv`: what is known of prompts on all tiers, and what can be done with it."""

import json
import sys
from typing import Annotated, Any

import typer

from antiphon.core.number_text import plural
from antiphon.errors import PeerError, UsageError

from . import kv_prompt, options
from .kv_codec import compress, profile
from .kv_cost import cost
from .kv_prompt import KvCall, takes_kv_call
from .kv_tables import lookup_text, stats_text

kv_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at the KV of prompts, on workers and in the store, and manage it.",
    epilog="See where a prompt is: antiphon kv lookup --text 'You are a helpful assistant. …'",
)
kv_app.command()(cost)
kv_app.command()(profile)
kv_app.command()(compress)
_USUAL = KvCall()
_PATIENT = KvCall(timeout=600.0)
_DONE = {
    "pin": "pinned",
    "unpin": "unpinned",
    "prefetch": "in the store's memory",
    "clear": "forgotten",
    "move": "moved",
}


@kv_app.command()
def stats(
    as_json: kv_prompt.AsJson = False,
    url: options.Url = None,
    token_file: options.TokenFile = None,
) -> None:
    """Show how full each tier is, and what became of what was asked.

    \b
    antiphon kv stats
    antiphon kv stats --json | jq '.tiers[] | {tier, blocks, dropped}'

    Hit and missed count blocks that workers asked the store for. Dropped: blocks that were not
    kept, or not given, by why.
    """
    from antiphon.live.admin.client import find_server

    answer = find_server(url, token_file).get("/admin/kv/stats")
    typer.echo(json.dumps(answer, indent=2) if as_json else stats_text(answer))


@kv_app.command()
@takes_kv_call
def lookup(call: KvCall = _USUAL) -> None:
    """Show how much of a prompt's beginning each worker and each tier of the store has.

    \b
    antiphon kv lookup --file manual.txt
    antiphon kv lookup --chat chat.json --tenant 2
    echo -n 'Once upon a time' | antiphon kv lookup --file -

    Looking does not make anything stay longer.
    """
    answer = call.post_prompt("lookup")
    typer.echo(json.dumps(answer, indent=2) if call.as_json else lookup_text(answer))


@kv_app.command()
@takes_kv_call
def pin(call: KvCall = _USUAL) -> None:
    """Keep a prompt's blocks in the store until they are unpinned.

    \b
    antiphon kv pin --file system-prompt.txt

    What the store does not have can't be pinned: send the prompt once, then pin it.
    """
    _say(call.post_prompt("pin"), call.as_json)


@kv_app.command()
@takes_kv_call
def unpin(call: KvCall = _USUAL) -> None:
    """Let a prompt's blocks give way again when others need the room.

    \b
    antiphon kv unpin --file system-prompt.txt
    """
    _say(call.post_prompt("unpin"), call.as_json, may_be_none=True)


@kv_app.command()
@takes_kv_call
def prefetch(call: KvCall = _USUAL) -> None:
    """Bring a prompt's blocks from slower tiers into the store's memory.

    \b
    antiphon kv prefetch --chat tomorrow-morning.json

    The next request with this prompt then waits for no disk.
    """
    _say(call.post_prompt("prefetch"), call.as_json)


@kv_app.command()
@takes_kv_call
def move(
    to: Annotated[
        str, typer.Option("--to", help="host or disk.", metavar="TIER", show_default=False)
    ],
    call: KvCall = _USUAL,
) -> None:
    """Have a prompt's blocks on another tier of the store, and on none that is faster.

    \b
    antiphon kv move --to disk --file last-quarter.txt

    What is pinned stays in memory. A block leaves memory when it was read from the disk.
    """
    if to not in ("host", "disk"):
        raise UsageError(f'--to "{to}": must be host or disk')
    _say(call.post_prompt("move", tier=to), call.as_json)


@kv_app.command()
@takes_kv_call
def clear(
    everything: Annotated[
        bool, typer.Option("--all", help="All that the store has, of everybody.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    call: KvCall = _USUAL,
) -> None:
    """Forget a prompt's blocks, all of a tenant, or all, on every tier of the store.

    \b
    antiphon kv clear --file leaked-secret.txt
    antiphon kv clear --tenant 3
    antiphon kv clear --all --yes

    Nothing wrong comes of it: what is missing is computed again. What workers have in their own
    memory stays there until it gives way; `antiphon restart` ends that too.
    """
    prompt = call.prompt()
    if everything and (prompt is not None or not call.of_everybody):
        raise UsageError("--all is everything of everybody: leave prompt and tenant out")
    if not everything and prompt is None and call.of_everybody:
        raise UsageError("say what to forget: a prompt (--text …), --tenant N, or --all")
    if not yes:
        what = "this prompt's blocks" if prompt is not None else "all blocks"
        whose = "" if call.tenant is None else f" of tenant {call.tenant}"
        _confirm(f"Forget {what}{whose} in the store?")
    _say(call.post("clear", prompt, everything=everything), call.as_json, may_be_none=True)


@kv_app.command()
@takes_kv_call
def verify(call: KvCall = _PATIENT) -> None:
    """Read blocks of the store again and compare their checksums; without a prompt, all of them.

    \b
    antiphon kv verify
    antiphon kv verify --file system-prompt.txt

    What is not what it was is forgotten, and the exit code is 1. A worker checks each block that
    it copies as well: this is to know how a disk does, not to be safe.
    """
    prompt = call.prompt()
    if prompt is None and not call.of_everybody:
        raise UsageError("without a prompt all blocks are verified: leave the tenant out")
    answer = call.post("verify", prompt)
    if call.as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        if not answer["blocks"]:
            typer.echo("all blocks that were read are what they were when they were put")
        if answer["note"]:
            typer.echo(answer["note"])
    if blocks := answer["blocks"]:
        was, they_were = ("was", "it was") if blocks == 1 else ("were", "they were")
        raise PeerError(
            f"{plural(blocks, 'block')} {was} missing, or not what {they_were} when put, and "
            f"{'is' if blocks == 1 else 'are'} forgotten: look at the disk of "
            f"store.dir, or at store.remote"
        )


def _confirm(question: str) -> None:
    """Go on, or raise. Where nobody can answer, what to say instead is named."""
    try:
        confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        raise UsageError("nobody confirmed it, so nothing was forgotten: say --yes") from None
    if not confirmed:
        raise typer.Abort


def _say(answer: dict[str, Any], as_json: bool, *, may_be_none: bool = False) -> None:
    """Print what was done. Raises `PeerError` if there was nothing to do it to where it matters."""
    asked, blocks, done = answer["asked"], answer["blocks"], _DONE[answer["op"]]
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    if not blocks and not may_be_none:
        raise PeerError(
            answer["note"]
            or f"the store has none of the prompt's {asked} blocks: send the prompt once, and look "
            f"with `antiphon kv lookup`"
        )
    if not as_json:
        of = "" if asked is None else f" of {asked}"
        noun = "block" if (blocks if asked is None else asked) == 1 else "blocks"
        note = f": {answer['note']}" if answer["note"] else ""
        typer.echo(f"{blocks:,}{of} {noun} {done} ({plural(answer['tokens'], 'token')}){note}")
