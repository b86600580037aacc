"""One's own prompts, from a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.core.number_text import number_text
from antiphon.errors import UsageError
from antiphon.types import Seconds

from ..asks import Api, Ask
from ..numbering import numbered
from ..options import Option, check
from ..prompt_rows import PromptRow, read_prompts
from ..sessions import AnswerOf, Session, TimedSession, Turn

NAME = "jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """The prompts of a file, in its order. Texts are sent as they are, whatever their length."""

    file: Annotated[Path, Option("one JSON object a line")]
    max_tokens: Annotated[
        int, Option("limit of an answer where the line has none", low=1, high=2**20)
    ] = 256
    api: Annotated[Api, Option("route of the OpenAI API: chat or completion")] = Api.CHAT
    repeat: Annotated[bool, Option("whether to begin again at the end of the file")] = False

    def __post_init__(self) -> None:
        check(self, NAME)

    @property
    def description(self) -> str:
        """See `Workload`."""
        again = ", again and again" if self.repeat else ""
        return f"{NAME}: the prompts of {self.file.name}{again}"

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Ends with the file, unless it is to `repeat`."""
        return numbered(self._rounds(seed))

    def timed_sessions(self, seed: int) -> Iterator[TimedSession]:
        """At the file's own times, once. Raises `UsageError` if a session has none."""
        at: list[Seconds] = []

        def remembered() -> Iterator[Session]:
            for rows in self._grouped():
                at.append(self._began_at(rows[0], at[-1] if at else 0.0))
                yield self._session(rows, seed)

        for session in numbered(remembered()):
            yield TimedSession(at[-1], session)

    def has_times(self) -> bool:
        """See `TimedWorkload`. The first line tells for all."""
        return next(read_prompts(self.file)).at_s is not None

    def own_rate_per_s(self, seed: int) -> float | None:
        """Sessions a second over the whole file; None if they all come at once."""
        del seed  # the same for all
        count, begin, end = 0, 0.0, 0.0
        for rows in self._grouped():
            end = self._began_at(rows[0], end)
            begin = begin if count else end
            count += 1
        return count / (end - begin) if end > begin else None

    def check_file(self, seed: int, *, own_times: bool) -> None:
        """See `FileWorkload`."""
        del seed  # the same for all
        last = 0.0
        for rows in self._grouped():
            last = self._began_at(rows[0], last) if own_times else last

    def _rounds(self, seed: int) -> Iterator[Session]:
        while True:
            for rows in self._grouped():
                yield self._session(rows, seed)
            if not self.repeat:
                return

    def _grouped(self) -> Iterator[list[PromptRow]]:
        """Rows of one session after another's."""
        ended: set[str] = set()
        for name, group in groupby(
            read_prompts(self.file), key=lambda row: row.session or f"\0{row.line}"
        ):
            rows = list(group)
            if name in ended:
                raise self._wrong(
                    rows[0],
                    f"session: rows of {name[:40]!r} must stand one below the other",
                )
            ended.add(name)
            for place, row in enumerate(rows):
                self._check(row, place)
                if row.slo_class not in ("", rows[0].slo_class):
                    raise self._wrong(row, "slo_class: must be that of the session's first row")
            yield rows

    def _check(self, row: PromptRow, place: int) -> None:
        if place and row.at_s is not None:
            raise self._wrong(
                row, "at_s: only the first row of a session has it: give pause_s instead"
            )
        if row.history is not None and self.api is Api.COMPLETION:
            raise self._wrong(row, "messages: the completion API takes none: give prompt")
        for message in row.history or ():
            for part in message.parts:
                if isinstance(part, AnswerOf) and part.turn >= place:
                    raise self._wrong(
                        row,
                        f"messages: answer_of {part.turn} must be an earlier row of the session: "
                        f"this is row {place}",
                    )

    def _session(self, rows: list[PromptRow], seed: int) -> Session:
        turns = tuple(
            Turn(
                ask=self._ask(row, seed),
                history=row.history or (),
                after=(place - 1,) if place else (),
                pause_s=row.pause_s,
            )
            for place, row in enumerate(rows)
        )
        return Session(number=0, turns=turns, slo_class=rows[0].slo_class or NAME)

    def _ask(self, row: PromptRow, seed: int) -> Ask:
        return Ask(
            number=0,
            text=row.text,
            max_tokens=row.output_tokens or row.max_tokens or self.max_tokens,
            temperature=0.0,
            seed=Draws(seed).below(2**31, NAME, row.line),
            ignore_eos=row.output_tokens is not None,
            api=self.api,
            model=row.model,
        )

    def _began_at(self, row: PromptRow, least: Seconds) -> Seconds:
        if row.at_s is None:
            raise self._wrong(
                row, "at_s: is missing: give every session one, or choose other arrivals"
            )
        if row.at_s < least:
            raise self._wrong(
                row,
                f"at_s: {number_text(row.at_s)} is before that of an earlier row",
            )
        return row.at_s

    def _wrong(self, row: PromptRow, problem: str) -> UsageError:
        return UsageError(f"{self.file}, line {row.line}: {problem}")
