"""Latency targets as people write them: on a command line, in a scenario."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from math import inf

from antiphon.errors import UsageError
from antiphon.types import Slo
from antiphon.workload import time_of

PRESETS = {
    "chat": Slo(ttft_s=0.25, tpot_s=0.1),
    "chat-66b": Slo(ttft_s=0.4, tpot_s=0.1),
    "chat-175b": Slo(ttft_s=4.0, tpot_s=0.2),
    "code": Slo(ttft_s=0.125, tpot_s=0.2),
    "summarise": Slo(ttft_s=15.0, tpot_s=0.15),
}
"""Targets of the DistServe paper (OSDI 2024, §6): ShareGPT with OPT-13B, -66B and -175B, HumanEval
and LongBench with OPT-66B."""
DEFAULT_PRESET = "chat"
_TARGETS = ("ttft", "tpot")


def slos_of(
    texts: Sequence[str],
    presets: Sequence[str] = (),
    *,
    names: tuple[str, str] = ("--slo", "--slo-preset"),
) -> tuple[tuple[str, Slo], ...]:
    """Targets by class, "" for whoever has none of their own; in order of the classes.

    `texts` are such as `ttft=500ms,tpot=50ms` and `code:ttft=1s` (what is not named has no target),
    `presets` such as `chat` and `code:code`. Raises `UsageError`, also if a class has two; it
    begins with the name of what is wrong, of the two `names`.
    """
    found: dict[str, Slo] = {}
    for option, values, read in (
        (names[0], texts, _targets),
        (names[1], presets, _preset),
    ):
        for text in values:
            name, colon, rest = text.rpartition(":")
            if colon and not name.strip():
                raise UsageError(f'{option} "{text}": has no class before the colon')
            if (name := name.strip()) in found:
                raise UsageError(f'{option} "{text}": {_whose(name)} has targets already')
            found[name] = read(rest, f'{option} "{text}":')
    return tuple(sorted(found.items()))


def default_slos(classes: Iterable[str]) -> tuple[tuple[str, Slo], ...]:
    """Where nobody says anything: each class's own preset, for all others `DEFAULT_PRESET`."""
    default = PRESETS[DEFAULT_PRESET]
    own = {name: PRESETS.get(name, default) for name in classes}
    others = {name: slo for name, slo in own.items() if slo != default}
    return tuple(sorted({"": default, **others}.items()))


def with_defaults(
    named: Sequence[tuple[str, Slo]], classes: Iterable[str]
) -> tuple[tuple[str, Slo], ...]:
    """`named`, and `default_slos` for whom they say nothing about."""
    if "" in dict(named):
        return tuple(named)
    return tuple(sorted({**dict(default_slos(classes)), **dict(named)}.items()))


def _targets(text: str, where: str) -> Slo:
    given: dict[str, float] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in _TARGETS:
            near = get_close_matches(key, _TARGETS, n=1)
            hint = f" (did you mean {near[0]}?)" if near and equals else ""
            raise UsageError(
                f'{where} "{part.strip()}" is no target{hint}: write ttft=500ms,tpot=50ms'
            )
        if key in given:
            raise UsageError(f"{where} names {key} twice")
        given[key] = time_of(value, f"{where} {key}")
    return Slo(ttft_s=given.get("ttft", inf), tpot_s=given.get("tpot", inf))


def _preset(name: str, where: str) -> Slo:
    if (preset := PRESETS.get(name.strip())) is not None:
        return preset
    raise UsageError(f"{where} must be one of {', '.join(PRESETS)}")


def _whose(name: str) -> str:
    return f'the class "{name}"' if name else "whoever is of no class"
