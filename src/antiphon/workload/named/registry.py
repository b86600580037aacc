"""Workloads by name: `chat`, `rag:documents=20,zipf=1.2`, `mix:chat=0.7,summarise=0.3`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from antiphon.errors import UsageError

from ..asks import Api
from ..context import DEFAULT_CONTEXT
from ..lengths import LognormalLength, fixed_length
from ..number_text import parse_number, shown
from ..options import OptionLine, build, option_lines, split_name, split_options
from ..sessions import Workload
from . import agents, completion, jsonl, mix, multi_turn, rag, trace
from .agents import Agents
from .completion import Completion
from .jsonl import JsonLines
from .mix import Mix
from .multi_turn import MultiTurn
from .rag import Rag
from .single_calls import SingleCalls
from .trace import Trace


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A workload that can be asked for by name."""

    name: str
    summary: str
    kind: Any
    """A frozen dataclass of options that is a `Workload`."""
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """What this name says of the kind, before the user's options."""

    @property
    def options(self) -> tuple[OptionLine, ...]:
        """What can be said about it."""
        return option_lines(self.kind, self.defaults)

    @property
    def needs_file(self) -> bool:
        """Whether it is made of a user's file, which may then be named without its key."""
        return any(line.key == "file" and not line.default for line in self.options)


def _single(name: str, summary: str, **defaults: object) -> WorkloadKind:
    return WorkloadKind(name, summary, SingleCalls, {"name": name, **defaults})


WORKLOADS: tuple[WorkloadKind, ...] = (
    _single(
        "fixed",
        "single calls of the lengths you choose",
        input=fixed_length(512),
        output=fixed_length(128),
    ),
    # Means as quoted from DistServe (OSDI 2024), figure 7; deviations are a choice of ours.
    _single(
        "chat",
        "single questions, lengths like ShareGPT's",
        input=LognormalLength(756, 800, low=4),
        output=LognormalLength(200, 180, low=4),
    ),
    _single(
        "code",
        "short completions, lengths like HumanEval's",
        input=LognormalLength(171, 80, low=20),
        output=LognormalLength(98, 60, low=4),
        api=Api.COMPLETION,
    ),
    _single(
        "summarise",
        "long prompts with short answers, lengths like LongBench's",
        input=LognormalLength(1738, 1000, low=200),
        output=LognormalLength(91, 60, low=8),
    ),
    WorkloadKind(multi_turn.NAME, "chats with think times and growing histories", MultiTurn),
    WorkloadKind(rag.NAME, "questions on shared documents in random order", Rag),
    WorkloadKind(
        completion.NAME, "an editor that sends a growing file again and again", Completion
    ),
    WorkloadKind(agents.NAME, "workflows: plan, tools side by side, write", Agents),
    WorkloadKind(trace.NAME, "a Mooncake or Azure trace, made smaller", Trace),
    WorkloadKind(jsonl.NAME, "your own prompts, one JSON object a line", JsonLines),
    WorkloadKind(mix.NAME, "several of these by share: mix:chat=0.7,summarise=0.3", Mix),
)
_BY_NAME = {kind.name: kind for kind in WORKLOADS}


def parse_workload(text: str, *, max_context: int | None = None) -> Workload:
    """The workload of a text such as `chat`, `fixed:input=100-900,output=64` or `trace:FILE`.

    `max_context`: of the model that answers. With it a trace is replayed as it was recorded, as far
    as its text says nothing else; without it it is made small enough for a machine of one's own.
    Other workloads are kept within it.
    Raises `UsageError` naming what is unknown, wrong or missing. Opens no file.
    """
    name, options = split_name(text)
    kind = _kind(name)
    if kind.kind is Mix:
        if max_context is not None and "max_context=" not in options:
            options += f",max_context={min(max_context, DEFAULT_CONTEXT)}"
        return _parse_mix(options)
    if kind.needs_file and options and "=" not in options.partition(",")[0]:
        options = f"file={options}"
    return build(kind.kind, name, options, {**kind.defaults, **_own(kind, max_context)})


def _own(kind: WorkloadKind, max_context: int | None) -> dict[str, object]:
    """What a model's context makes of the defaults."""
    if max_context is None:
        return {}
    if kind.kind is Trace:
        return trace.full_size(max_context)
    has_it = any(line.key == "max_context" for line in kind.options)
    return {"max_context": min(max_context, DEFAULT_CONTEXT)} if has_it else {}


def _kind(name: str) -> WorkloadKind:
    kind = _BY_NAME.get(name)
    if kind is None:
        raise UsageError(f"workload: must be one of {', '.join(_BY_NAME)}, not {shown(name)}")
    return kind


def _parse_mix(options: str) -> Mix:
    """Shares by name; `max_context` is for all parts."""
    parts = [one for one in WORKLOADS if one.kind is not Mix and not one.needs_file]
    names = [one.name for one in parts]
    given = split_options(options, [*names, "max_context"], mix.NAME)
    context = given.pop("max_context", None)
    if not given:
        raise UsageError(f"{mix.NAME}: names no workload: give mix:chat=0.7,summarise=0.3")
    common = f"max_context={context}" if context else ""
    return Mix(
        tuple((parse_workload(f"{name}:{common}"), _share(name, given[name])) for name in given)
    )


def _share(name: str, text: str) -> float:
    share = parse_number(text)
    if share is None:
        raise UsageError(f"{mix.NAME}: {name} must be a share such as 0.7, not {shown(text)}")
    return share
