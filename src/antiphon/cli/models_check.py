"""`antiphon models check`: how much worse a model is in int8 or 16 bits than in fp32, on a text."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.core.arithmetic import dtype_of, on_torch_device
from antiphon.core.number_text import number_text, plural
from antiphon.errors import UsageError
from antiphon.types import Config

from . import options
from .bar import bar
from .progress import Progress
from .settings import load, parse_cores

if TYPE_CHECKING:
    from antiphon.checkpoint import Checkpoint
    from antiphon.engine import DeviceLlama

_MOST_TEXT_BYTES = 256 * 1024**2


def check(
    model: options.Model = None,
    text: Annotated[
        Path | None,
        typer.Option(
            help="A text of your kind, in UTF-8.",
            metavar="FILE",
            show_default="Python's own documentation",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Compare with another model of the same tokenizer.", metavar="MODEL"),
    ] = None,
    quantize: options.EngineQuantize = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    kv_dtype: options.KvDtype = None,
    positions: Annotated[
        int, typer.Option(min=2, max=10**7, help="Most tokens of the text that are used.")
    ] = 4096,
    window: Annotated[
        int, typer.Option(min=2, max=2**20, help="Tokens of one prompt; at most the context.")
    ] = 1024,
    max_kl: Annotated[
        float | None,
        typer.Option(min=0.0, help="Exit code 1 if the mean KL is above this.", metavar="NATS"),
    ] = None,
    cores: options.Cores = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
    config: options.ConfigFile = None,
) -> None:
    """Say how far MODEL's predictions are from its own in fp32, on your text.

    \b
    antiphon models check smollm2-135m
    antiphon models check ./model.gguf --text mails.txt --max-kl 0.01
    antiphon models check smollm2-135m --dtype bf16
    antiphon models check ./smollm2-8x --reference smollm2-135m --quantize none

    KL: how many nats the predictions of the next token are away on average, 0 if equal. Top-1:
    how often both find the same token likeliest. Memory: both models, and the logits of a window.
    The one in fp32 runs on the processor.
    """
    given = {
        ("model", "name"): model,
        ("model", "quantize"): quantize,
        ("model", "dtype"): dtype,
        ("engine", "device"): device,
        ("kv", "dtype"): kv_dtype,
        ("engine", "cores"): parse_cores(cores),
    }
    settings = load(config, given, reaches_hosts=False)
    found = _measure(settings, read_text(text), reference, positions, window)
    typer.echo(json.dumps(found, indent=2) if as_json else _as_text(found))
    kl = found["mean_kl_nats"]
    if max_kl is not None and not kl <= max_kl:
        told = f"{number_text(kl, 3)} nats, above --max-kl {number_text(max_kl)}"
        typer.echo(f"antiphon: the mean KL is {told}", err=True)
        raise typer.Exit(1)


def read_text(file: Path | None) -> str:
    """The user's text, or one that every Python has: its documentation. Raises `UsageError`."""
    if file is None:
        from pydoc_data.topics import topics

        return "\n\n".join(topics[name] for name in sorted(topics))
    try:
        if file.stat().st_size > _MOST_TEXT_BYTES:
            raise UsageError(f"{file}: longer than {_MOST_TEXT_BYTES} bytes: give a part of it")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 text: {error.reason} at {error.start}") from None


def _measure(
    config: Config, text: str, reference: str | None, positions: int, window: int
) -> dict[str, Any]:
    """Load both, compare them; what `--json` prints. `dtype` as of `models inspect`."""
    dtype = dtype_of(config.model.quantize, config.model.dtype)
    from antiphon.checkpoint import open_checkpoint, resolve
    from antiphon.engine import compare, kv_dtype_of, load_llama, use_cores
    from antiphon.live.cache_folder import cache_folder
    from antiphon.text import Tokenizer

    use_cores(config.engine.cores)
    kv_dtype = kv_dtype_of(config.kv.dtype, dtype)
    with Progress() as progress:
        progress.say(f"Opening {config.model.name}")
        candidate = open_checkpoint(resolve(config.model.name))
        other = candidate if reference is None else open_checkpoint(resolve(reference))
        if other.spec.vocab_size != candidate.spec.vocab_size:
            raise UsageError(
                f"{other.name} has {plural(other.spec.vocab_size, 'token')}, {candidate.name} "
                f"{candidate.spec.vocab_size}: only models of one tokenizer can be compared"
            )
        prompts = windows(
            Tokenizer.load(candidate.tokenizer).encode(text[: 16 * positions])[:positions],
            min(window, candidate.spec.context_len, other.spec.context_len),
        )
        progress.say("Loading weights (the first time converts them)")
        cache = cache_folder(config.engine)
        if on_torch_device(config):
            judged = _on_device(candidate, config.engine.device, dtype)
        else:
            judged = load_llama(candidate, dtype=dtype, cache_dir=cache)
        judge = load_llama(other, dtype="fp32", cache_dir=cache)
    with bar("comparing") as advance:
        agreement = compare(judge, judged, prompts, kv_dtype=kv_dtype, advance=advance)
    return {
        "model": candidate.name,
        "quantize": config.model.quantize,
        "dtype": dtype if config.model.quantize == "none" else None,
        "device": config.engine.device,
        "kv_dtype": kv_dtype.value,
        "reference": other.name,
        "window_tokens": max(map(len, prompts)),
        **asdict(agreement),
    }


def _on_device(checkpoint: "Checkpoint", device: str, dtype: str) -> "DeviceLlama":
    """The model on the device that is asked for. Raises `UsageError`: it is not there, or full."""
    from antiphon.engine import check_room, device_weight_bytes, load_on_device, open_device

    opened = open_device(device)
    check_room(opened, weights=device_weight_bytes(checkpoint, dtype), kv=0)
    return load_on_device(checkpoint, device=opened, dtype=dtype)


def windows(tokens: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """`tokens` cut into prompts of `size`; a last one of a token alone predicts nothing.

    Raises `UsageError` if there is nothing to predict.
    """
    cut = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    kept = [prompt for prompt in cut if len(prompt) > 1]
    if not kept:
        raise UsageError(
            f"the text has {plural(len(tokens), 'token')}: give one of at least two (--text)"
        )
    return kept


def _as_text(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"{found['model']} in {found['dtype'] or found['quantize']} on {found['device']}, "
            f"keys and values in {found['kv_dtype']}, "
            f"against {found['reference']} in fp32",
            f"  {plural(found['positions'], 'position')} in prompts of "
            f"{plural(found['window_tokens'], 'token')}",
            f"  KL          {max(found['mean_kl_nats'], 0.0):.5f} nats on average",
            f"  top-1       {found['top1']:.2%} alike",
            f"  perplexity  {number_text(found['perplexity'], 4)}, "
            f"fp32 {number_text(found['reference_perplexity'], 4)}: "
            f"{found['perplexity_change']:+.2%} ± {found['perplexity_error']:.2%}",
        ]
    )
