"""`antiphon kv profile` and `antiphon kv compress`: KV as few bytes, and what that costs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from antiphon.core.number_text import plural
from antiphon.errors import UsageError

from . import options
from .bar import stages
from .kv_prompt import AsJson
from .settings import load, parse_cores

if TYPE_CHECKING:
    from antiphon.live.kv_levels import LevelTrial
    from antiphon.store.codec import KvProfile, Level

Text: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--text",
        help="File of text such as the model will see; may be given more than once.",
        metavar="FILE",
        show_default="Python's own reference",
    ),
]
Levels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--level",
        "-l",
        help="raw, lossless, int8, int4 or entropy-N; may be given more than once.",
        metavar="LEVEL",
        show_default="all, entropy-N with --profile",
    ),
]
ProfileFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--profile", help="What `antiphon kv profile` wrote for the model.", metavar="FILE"
    ),
]
_USUAL_LEVELS = ("lossless", "int8", "int4")


def profile(
    model: options.Model = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The profile's file.",
            metavar="FILE",
            show_default="in the user's cache folder",
        ),
    ] = None,
    text: Text = None,
    prompts: Annotated[
        int, typer.Option(min=4, max=1000, help="How many parts of the text are looked at.")
    ] = 24,
    cores: options.Cores = None,
    as_json: AsJson = False,
    config: options.ConfigFile = None,
) -> None:
    """Learn what MODEL's keys and values are like, for the entropy-coded levels of the codec.

    Looks at the KV of some prompts, and at how much the tokens after them depend on each of its
    directions. The file is written at the end, or not at all.

    \b
    antiphon kv profile smollm2-135m
    antiphon kv profile ./model.gguf --text chats.txt --text manual.txt -o model.kvprofile

    How long it takes grows with --prompts and with the model, which computes each of them in
    float32, there and back: fewer prompts, or more --cores, make it shorter.
    """
    from .profile import check_writable

    if output is not None:
        check_writable(output)
    said = read_texts(text)
    settings = load(
        config,
        {("model", "name"): model, ("engine", "cores"): parse_cores(cores)},
        reaches_hosts=False,
    )
    from antiphon.live.cache_folder import cache_folder
    from antiphon.live.kv_profiler import SampleSizes, profile_kv
    from antiphon.store.codec import write_kv_profile

    with stages() as (say, advance):
        made = profile_kv(
            settings, said, sizes=SampleSizes(prompts=prompts), say=say, advance=advance
        )
    path = (
        output or cache_folder(settings.engine) / "kv-profiles" / f"{made.identity.hex()}.kvprofile"
    )
    write_kv_profile(made, path)
    told = profile_values(made)
    typer.echo(json.dumps(told | {"path": str(path)}, indent=2) if as_json else profile_text(told))
    if not as_json:
        typer.echo(f"Profile: {path}")


def compress(
    model: options.Model = None,
    text: Text = None,
    level: Levels = None,
    profile_file: ProfileFile = None,
    contexts: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many parts of the text are taken.")
    ] = 8,
    tokens: Annotated[
        int, typer.Option(min=64, max=1_000_000, help="Of each, in whole blocks of 64.")
    ] = 1024,
    following: Annotated[
        int, typer.Option(min=2, max=4096, help="Tokens after it whose quality is measured.")
    ] = 64,
    quantize: options.Quantize = None,
    kv_dtype: options.KvDtype = None,
    cores: options.Cores = None,
    as_json: AsJson = False,
    config: options.ConfigFile = None,
) -> None:
    """Compress the KV that MODEL makes of a text, and measure size, quality and speed of levels.

    Quality is that of the next tokens, with the decoded KV and with the exact one: their divergence
    (KL, in nats), how often the likeliest token is the same, and the text's perplexity. Nothing is
    kept.

    \b
    antiphon kv compress smollm2-135m --text manual.txt -l int8 -l int4
    antiphon kv compress smollm2-135m --text manual.txt --profile smollm2.kvprofile --json
    """
    from antiphon.live.kv_levels import TrialSizes, try_levels
    from antiphon.store.codec import parse_level

    given = {
        ("model", "name"): model,
        ("model", "quantize"): quantize,
        ("kv", "dtype"): kv_dtype,
        ("engine", "cores"): parse_cores(cores),
    }
    settings = load(config, given, reaches_hosts=False)
    levels = [parse_level(name) for name in level or ()]
    known = _read_profile(profile_file)
    said = read_texts(text)
    with stages() as (say, advance):
        found = try_levels(
            settings,
            said,
            levels or usual_levels(known),
            known,
            sizes=TrialSizes(contexts=contexts, tokens=tokens, following=following),
            say=say,
            advance=advance,
        )
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        typer.echo(trials_text(found))


def _read_profile(file: Path | None) -> "KvProfile | None":
    from antiphon.store.codec import read_kv_profile

    try:
        return None if file is None else read_kv_profile(file)
    except UsageError as error:
        raise UsageError(f"--profile {error}") from None


def usual_levels(known: "KvProfile | None") -> "list[Level]":
    """Those that are tried if none is named."""
    from antiphon.store.codec import entropy, parse_level

    of_profile = range(1, len(known.levels) + 1) if known is not None else ()
    return [*map(parse_level, _USUAL_LEVELS), *map(entropy, of_profile)]


def read_texts(files: Sequence[Path] | None) -> str:
    """The files' text, joined; without any, Python's own reference. Raises `UsageError`."""
    if not files:
        try:
            from pydoc_data.topics import topics
        except ImportError:
            raise UsageError(
                "this Python has no reference to take as a text: give one with --text"
            ) from None
        return "\n\n".join(topics[name] for name in sorted(topics))
    parts = []
    for file in files:
        try:
            parts.append(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--text {file}: can't be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--text {file}: is not text in UTF-8") from None
    return "\n\n".join(parts)


def profile_values(made: "KvProfile") -> dict[str, Any]:
    """What is told of a profile."""
    return {
        "model": made.model,
        "id": made.id.hex(),
        "levels": [
            {
                "name": f"entropy-{number}",
                "bits_per_element": level.bits_per_element,
                "kept": sum(int((mine > 0).sum()) for mine in level.classes)
                / sum(map(len, level.classes)),
            }
            for number, level in enumerate(made.levels, 1)
        ],
    }


def profile_text(told: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{told['model']}, profile {told['id']}", "level       bits/element  of 8 bit  kept"]
    lines += [
        f"{one['name']:<12}{one['bits_per_element']:>12.2f}"
        f"{8 / one['bits_per_element']:>9.2f}x{one['kept']:>6.0%}"
        for one in told["levels"]
    ]
    return "\n".join(lines)


def trials_text(found: "Sequence[LevelTrial]") -> str:
    """A table, one level a line."""
    lines = [
        "level       bits/element  of 8 bit  KL (nats)   top-1  perplexity  encode    decode  (M/s)"
    ]
    for one in found:
        trial, speed = one.trial, one.speed
        rates = (
            f"{speed.encode_per_s / 1e6:>8.0f}{speed.decode_per_s / 1e6:>10.0f}" if speed else ""
        )
        lines.append(
            f"{trial.name:<12}{trial.bits:>12.2f}{8 / trial.bits:>9.2f}x"
            f"{trial.divergence:>11.5f}{trial.top1:>8.1%}"
            f"{trial.perplexity / trial.exact_perplexity - 1:>+12.2%}{rates}"
        )
    lines += [
        f"{one.trial.name}: {plural(one.raw_blocks, 'block')} could not be encoded, and stayed raw"
        for one in found
        if one.raw_blocks
    ]
    positions = found[0].trial.positions
    lines.append(
        f"{plural(positions, 'token')}, exact perplexity {found[0].trial.exact_perplexity:.2f}"
    )
    return "\n".join(lines)
