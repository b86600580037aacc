"""What `antiphon bench` was told, checked: a server, a load, and how its results are kept."""

import json
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.core.goodput import Slos
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Seconds
from antiphon.workload import Trace, parse_workload

from .bench_search import SearchWords, aim_of
from .key_file import first_key
from .quantities import seconds
from .token_counter import token_counter

if TYPE_CHECKING:
    from antiphon.bench import LoadLimits, Order, Server
    from antiphon.runs import LoadPlan

DEFAULT_WORKLOAD = "chat"
_LENGTHS = "lengths are options of --workload, such as output=64"
_PROMPTS = "prompts are those of --workload, such as jsonl:FILE"
_ALWAYS = "it is the same for all calls"
_PLANNED = {
    "model": "name it with --model",
    "messages": _PROMPTS,
    "prompt": _PROMPTS,
    "max_tokens": _LENGTHS,
    "max_completion_tokens": _LENGTHS,
    "min_tokens": _LENGTHS,
    "n": _ALWAYS,
    "stream": _ALWAYS,
    "stream_options": _ALWAYS,
    "seed": "give --seed",
}
"""Fields of a call that reports tell about, and how to change what they are."""


def server_of(
    url: str, model: str | None, api_key: str | None, insecure: bool, extra_body: str | None
) -> "Server":
    """The server as it is asked for. Raises `UsageError` for what can't be one."""
    from antiphon.bench import Server

    if "://" not in url:
        raise UsageError(
            f'"{url}" is neither a URL, such as http://127.0.0.1:8000, nor one of the commands '
            "compare and report"
        )
    return Server(
        url=url,
        model=model or "",
        api_key=api_key,
        verify_tls=not insecure,
        extra_body=_object(extra_body),
    )


def limits_of(timeout: str, max_open: int) -> "LoadLimits":
    """Bounds of the client. Raises `UsageError`."""
    from antiphon.bench import LoadLimits

    return LoadLimits(timeout_s=seconds(timeout, "--timeout"), max_open=max_open)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWords:
    """A load as it was written on the command line. `rate` is of calls."""

    workload: str | None
    trace: Path | None
    arrivals: str | None
    rate: float | None
    duration: str
    requests: int | None
    warmup: str
    slos: Slos
    devices: int
    seed: int
    title: str


_GIVEN_OTHERWISE = ("slos", "title")
_LOAD_WORDS = [one.name for one in fields(LoadWords) if one.name not in _GIVEN_OTHERWISE]
_SEARCH_WORDS = [one.name for one in fields(SearchWords)]
"""Options whose values are taken as they are."""
_PATHS = ("trace", "api_key_file", "output")


def order_of(words: Mapping[str, Any]) -> "Order":
    """What is to be measured, by the names of the command's options, whose `url` was given.

    Paths may be text. Raises `UsageError` for what is wrong or has no effect, or can't be read.
    """
    from antiphon.bench import Order
    from antiphon.runs import slos_of

    paths = {name: Path(words[name]) if words[name] else None for name in _PATHS}
    words = {**words, **paths}
    plan = plan_of(
        LoadWords(
            slos=slos_of(words["slo"] or (), words["slo_preset"] or ()),
            title=words["title"] or "",
            **{name: words[name] for name in _LOAD_WORDS},
        )
    )
    search = SearchWords(**{name: words[name] for name in _SEARCH_WORDS})
    if words["overwrite"] and words["output"] is None:
        raise UsageError("--overwrite: has no effect without -o")
    key, tokenizer = first_key(words["api_key_file"]), words["tokenizer"]
    return Order(
        server=server_of(words["url"], words["model"], key, words["insecure"], words["extra_body"]),
        limits=limits_of(words["timeout"], words["max_open"]),
        count_tokens=token_counter(tokenizer) if tokenizer else None,
        plan=plan,
        aim=aim_of(search, plan, words["rate"]),
        folder=words["output"],
        overwrite=words["overwrite"],
        command=shlex.join(["antiphon", *sys.argv[1:]]),
    )


def plan_of(words: LoadWords) -> "LoadPlan":
    """The load. Raises `UsageError`, also for a file that can't be read or has nothing to send."""
    from antiphon.runs import plan_load

    rate = words.rate
    if rate is not None and not 0 < rate < math.inf:
        raise UsageError(f"--rate {number_text(rate)}: must be above 0 requests a second")
    if words.trace is not None and words.workload is not None:
        raise UsageError("--trace and --workload: give one of them (or --workload trace:FILE,…)")
    chosen = words.workload or DEFAULT_WORKLOAD
    workload = parse_workload(chosen) if words.trace is None else Trace(file=words.trace)
    plan = plan_load(
        workload,
        arrivals=words.arrivals,
        rate_per_s=rate,
        duration_s=seconds(words.duration, "--duration"),
        slos=words.slos,
        most_calls=words.requests,
        devices=words.devices,
        seed=words.seed,
        title=words.title,
    )
    return replace(plan, warmup_s=warmup(words.warmup, plan.span_s))


def warmup(text: str, span_s: Seconds) -> Seconds:
    """The beginning that does not count: a time, or a share of `span_s`. Raises `UsageError`."""
    share = text.strip().removesuffix("%").strip()
    if share == text.strip():
        found = seconds(text, "--warmup", zero=True)
        if found >= span_s:
            raise UsageError(
                f"--warmup {text}: takes all of the {number_text(span_s)} s that load lasts"
            )
        return found
    if not (share.isascii() and share.replace(".", "", 1).isdigit() and float(share) < 100):
        raise UsageError(f'--warmup "{text}": must be a time such as 5s, or 0% to below 100%')
    return span_s * float(share) / 100


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra-body: is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise UsageError('--extra-body: must be a JSON object, such as {"top_k": 1}')
    for name in found:
        if (remedy := _PLANNED.get(name)) is not None:
            raise UsageError(f"--extra-body: {name} is planned by the load: {remedy}")
    return found
