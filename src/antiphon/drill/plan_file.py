"""A drill's plan out of a file: its load in [load], its faults in [[fault]]."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from antiphon.core.faults import (
    GATEWAY,
    FaultSchedule,
    Lag,
    Table,
    When,
    WrongValueError,
    read_schedule,
)
from antiphon.errors import UsageError
from antiphon.types import Slo
from antiphon.workload import AskMix

from .events import SEEN
from .plan import DrillPlan, Load

_MOST_BYTES = 2**20
_MOST_WORDS = 1_000_000


def read_plan(file: Path, seed: int | None = None) -> DrillPlan:
    """The plan in `file`; `seed` goes over the file's own.

    Raises `UsageError` that names the file, the entry, the key and the remedy; also for what the
    simulator could do and a drill can't.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UsageError(f"{file}: can't be read: {reason}") from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{file}: longer than {_MOST_BYTES} bytes: that is no fault plan")
    found = read_schedule(text, str(file), seed, events=SEEN)
    _check(found.schedule, str(file))
    try:
        return DrillPlan(schedule=found.schedule, load=_load(found.load))
    except WrongValueError as error:
        raise UsageError(f"{file}: [load]: {error}") from None


def _check(schedule: FaultSchedule, file: str) -> None:
    for place, entry in enumerate(schedule.entries, start=1):
        if isinstance(entry.trigger, When) and entry.trigger.boundary not in SEEN:
            raise UsageError(
                f'{file}: fault {place}: after-event: "{entry.trigger.boundary}" can\'t be seen '
                f"from outside: a drill sees {', '.join(SEEN)}"
            )
        if isinstance(entry.action, Lag) and entry.target != GATEWAY:
            raise UsageError(
                f"{file}: fault {place}: target: a drill can delay only what passes between "
                f'clients and the gateway: "{GATEWAY}"'
            )


def _load(fields: Mapping[str, Any]) -> Load:
    table, default = Table(fields), Load()

    def given(value: Any, otherwise: Any) -> Any:
        return otherwise if value is None else value

    load = Load(
        duration_s=given(table.seconds("duration", low=1.0), default.duration_s),
        rate_per_s=given(table.number("rate", None, 0.01, 10_000), default.rate_per_s),
        asks=given(table.count("asks", None, 1, 10_000), default.asks),
        mix=AskMix(
            prompt_words=_range(table, "prompt-words", default.mix.prompt_words),
            max_tokens=_range(table, "max-tokens", default.mix.max_tokens),
        ),
        slo=Slo(
            ttft_s=given(table.seconds("ttft"), default.slo.ttft_s),
            tpot_s=given(table.seconds("tpot"), default.slo.tpot_s),
        ),
        undisturbed=table.flag("undisturbed", False),
    )
    table.finish()
    return load


def _range(table: Table, key: str, default: tuple[int, int]) -> tuple[int, int]:
    text = table.text(key)
    try:
        return default if text is None else parse_range(text)
    except ValueError as error:
        raise WrongValueError(key, str(error)) from None


def parse_range(text: str) -> tuple[int, int]:
    """Both ends of "8-48". Raises `ValueError` for anything else."""
    low, _, high = text.partition("-")
    if low.isascii() and low.isdigit() and high.isascii() and high.isdigit():
        ends = int(low), int(high)
        if ends[0] > ends[1]:
            raise ValueError(f'"{text}": the first number must not be larger than the second')
        if ends[0] >= 1 and ends[1] <= _MOST_WORDS:
            return ends
    raise ValueError(f'"{text}" must be two numbers of 1 to {_MOST_WORDS}, such as "8-48"')
