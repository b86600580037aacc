"""`antiphon profile`: how long this machine takes for the steps of a model."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.errors import UsageError
from antiphon.types import Config

from . import options
from .bar import stages
from .settings import engine_options, load

if TYPE_CHECKING:
    from antiphon.perf import Profile


def profile(
    model: options.Model = None,
    quantize: options.EngineQuantize = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    kv_memory: options.KvMemory = None,
    page_tokens: options.PageTokens = None,
    kv_dtype: options.KvDtype = None,
    cores: options.Cores = None,
    device: options.Device = None,
    budget: Annotated[
        str, typer.Option(help="How long to measure, such as 60s or 5min.", metavar="TIME")
    ] = "60s",
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
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
    config: options.ConfigFile = None,
) -> None:
    """Measure how long steps of MODEL take here, and keep a model of it in a file.

    Steps are prefills, parts of prompts, decodes and mixtures; some are never used for the fit
    and say how good it is. The file is written at the end, or not at all.

    \b
    antiphon profile smollm2-135m
    antiphon profile ./model.gguf --cores 0 --budget 5min -o model.json
    antiphon profile ./folder --device cuda:0
    """
    budget_s = budget_seconds(budget)
    if output is not None:
        check_writable(output)
    given = {
        **engine_options(
            model, quantize, dtype, max_model_len, kv_memory, page_tokens, kv_dtype, cores, device
        ),
    }
    settings = load(config, given, reaches_hosts=False)
    measured = _measure(settings, budget_s)

    from antiphon.live.cache_folder import cache_folder
    from antiphon.perf import encode_profile, write_profile

    name = default_name(measured, settings.engine.device)
    path = output or cache_folder(settings.engine) / "profiles" / name
    write_profile(measured, path)
    if as_json:
        typer.echo(encode_profile(measured).decode(), nl=False)
        typer.echo(f"Profile: {path}", err=True)
        return
    from .profile_report import report

    typer.echo(report(measured))
    typer.echo(f"Profile: {path}")


def budget_seconds(text: str) -> float:
    """Seconds of a time such as "60s", "1.5min" or "90". Raises `UsageError`."""
    from antiphon.workload import parse_duration

    seconds = parse_duration(text)
    if seconds is None or not 1 <= seconds <= 86400:
        raise UsageError(
            f'--budget "{text}": must be a time from 1s to 86400s, such as 60s or 5min'
        )
    return seconds


def check_writable(path: Path) -> None:
    """Raise `UsageError` if `path` can't be written: better now than after the measurement."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: can't be written: give another file (--output)")


def default_name(measured: "Profile", device: str) -> str:
    """The file's name for a profile of this model, arithmetic and number of cores, or device."""
    engine = measured.engine
    where = f"{engine.cores}cores" if device == "cpu" else device
    name = re.sub(r"[^\w.-]+", "_", f"{engine.model}-{engine.dtype}-{where}")
    return f"{name}.json"


def _measure(config: Config, budget_s: float) -> "Profile":
    """Loads and measures, and tells of it."""
    with stages() as (say, advance):
        from antiphon.live.profiler import profile as run

        return run(
            config,
            budget_s=budget_s,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            say=say,
            advance=advance,
        )
