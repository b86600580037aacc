"""`antiphon replay`: would this version decide as the recorded one did?"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import typer

from antiphon import __version__
from antiphon.core.number_text import plural
from antiphon.errors import UsageError

_LONGEST = 500
Item = TypeVar("Item")


def replay(
    file: Annotated[
        Path,
        typer.Argument(help="Written by `antiphon serve --decision-log FILE`.", metavar="FILE"),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Replay a decision log: the same facts, and are the decisions the same?

    Needs no model and no network. Exit code 0: all decisions are the same. 1: one is not; the
    first is shown, with the place in it where it differs.

    \b
    antiphon serve smollm2-135m --decision-log run.jsonl
    antiphon replay run.jsonl
    """
    from antiphon.core import recorder
    from antiphon.core.recorded_run import fresh_machines
    from antiphon.perf import read_times
    from antiphon.wire import read_decision_log

    with _opened(file) as lines:
        run = read_decision_log(lines, str(file))
        entries = _Counted(run.entries)
        try:
            step_tokens = run.setup.config.scheduler.max_batched_tokens
            machines = fresh_machines(
                run.setup, read_times(run.setup.times, step_tokens=step_tokens)
            )
            found = next(recorder.replay(entries, machines), None)
        except UsageError as error:
            prefix = "" if str(error).startswith(f"{file}: ") else f"{file}: "
            raise UsageError(f"{prefix}{error}") from None
    difference = None
    if found is not None:
        difference = asdict(found) | {
            "recorded": _shown(found.recorded),
            "replayed": _shown(found.replayed),
        }
    answer = {
        "equal": found is None,
        "decisions": entries.count,
        "recorded_by": run.setup.program,
        "replayed_by": __version__,
        "first_difference": difference,
    }
    typer.echo(json.dumps(answer, indent=2) if as_json else "\n".join(_lines(answer)))
    raise typer.Exit(0 if found is None else 1)


class _Counted(Iterator[Item]):
    """Passes items on and counts them."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self.count = 0

    def __next__(self) -> Item:
        item = next(self._items)
        self.count += 1
        return item


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise UsageError(f"{file}: can't be read ({error.strerror})") from None


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    versions = f"recorded by {answer['recorded_by']}, replayed by {answer['replayed_by']}"
    difference = answer["first_difference"]
    if difference is None:
        yield f"The same: {plural(answer['decisions'], 'decision')} ({versions})"
        return
    place = f"{difference['machine']}.{difference['method']}, call {difference['number']}"
    yield f"Decision {answer['decisions']} is not the same ({versions})"
    yield f"  in        {place}{difference['path'] and ', at ' + difference['path']}"
    yield f"  recorded  {difference['recorded']}"
    yield f"  replayed  {difference['replayed']}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
