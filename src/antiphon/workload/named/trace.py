"""A public trace, made small enough for this machine: its times, lengths and shared beginnings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from antiphon.core.number_text import number_text
from antiphon.errors import UsageError

from ..context import DEFAULT_CONTEXT, MaxContext, room, spare
from ..options import Option, check
from ..sessions import Session, TimedSession, Turn
from ..trace_prompts import ID_WORDS, MOST_HASH_ID, TraceScale, fitting, thinned, trace_asks
from ..traces import TraceRow, read_trace

NAME = "trace"
WHOLE_OUTPUT = 4096
_TRACE_BLOCK = 512
"""Tokens of the trace's own blocks."""


def full_size(max_context: int) -> dict[str, object]:
    """Options of a trace that is replayed as it was recorded, for a model of that context."""
    return {
        "block": _TRACE_BLOCK,
        "output_share": 1.0,
        "max_output": min(WHOLE_OUTPUT, max_context // 4),
        "max_context": max_context,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Sessions of one call for each row that fits `max_context`; the others are left out.

    Mooncake's rows share text where they share hash ids; Azure's share nothing. `share` keeps that
    share of the conversations, whole ones.
    """

    file: Annotated[Path, Option("Mooncake's JSON lines or Azure's CSV")]
    block: Annotated[
        int, Option("tokens that stand for 512 of the trace's prompts", low=ID_WORDS, high=512)
    ] = 32
    output_share: Annotated[
        float, Option("what lengths of outputs are multiplied by", low=0, high=1)
    ] = 1 / 16
    max_output: Annotated[int, Option("most tokens of an output", low=1, high=2**20)] = 64
    share: Annotated[
        float, Option("share of the conversations that is kept", low=0, high=1, above_low=True)
    ] = 1.0
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, NAME)
        spare(NAME, ID_WORDS + self.max_output, room(self.max_context, 1), self.max_context)

    @property
    def description(self) -> str:
        """See `Workload`."""
        kept = f", {number_text(self.share)} of its conversations" if self.share != 1 else ""
        return (
            f"{NAME}: {self.file.name}{kept}, prompts times "
            f"{number_text(self.block / _TRACE_BLOCK, 3)}, "
            f"outputs times {number_text(self.output_share, 3)} up to {self.max_output} tokens; "
            "rows over "
            f"{self.max_context} tokens are left out"
        )

    @property
    def scaled_down(self) -> str | None:
        """A sentence on how much less than the trace is sent; None: as much."""
        if self.block == _TRACE_BLOCK and self.output_share == 1:
            return None
        return (
            f"The trace is scaled down: prompts to {number_text(self.block / _TRACE_BLOCK, 3)}, "
            "outputs to "
            f"{number_text(self.output_share, 3)} of their lengths and at most {self.max_output} "
            "tokens; its "
            "options block, output_share, max_output and max_context say how far."
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Ends with the trace."""
        return (timed.session for timed in self.timed_sessions(seed))

    def timed_sessions(self, seed: int) -> Iterator[TimedSession]:
        """At the trace's own times, the first at 0. Raises `UsageError` if no row fits."""
        for row in trace_asks(self.rows(seed), self._scale, seed=seed):
            ask = replace(row.ask, ignore_eos=True)
            session = Session(number=ask.number, turns=(Turn(ask=ask),), slo_class=NAME)
            yield TimedSession(row.at_s, session)

    def has_times(self) -> bool:
        """See `TimedWorkload`."""
        return True

    def own_rate_per_s(self, seed: int) -> float | None:
        """Rows a second that fit, over the whole trace; None if they all come at once."""
        count, begin, end = 0, 0.0, 0.0
        for row in self.rows(seed):
            begin, end = (row.at_s if not count else begin), row.at_s
            count += 1
        return count / (end - begin) if end > begin else None

    def check_file(self, seed: int, *, own_times: bool) -> None:
        """See `FileWorkload`."""
        del own_times  # every row has one
        for _ in self.rows(seed):
            pass

    def rows(self, seed: int) -> Iterator[TraceRow]:
        """Those that are kept and fit, as they were recorded. Raises `UsageError` if none is."""
        rows, row = self._checked(), None
        for row in fitting(
            thinned(rows, self.share, seed) if self.share < 1 else rows, self._scale
        ):
            yield row
        if row is None:
            raise UsageError(
                f"{self.file}: no row fits max_context={self.max_context}: raise it, keep more of "
                f"the trace (share is {number_text(self.share)}) or make it smaller (block is "
                f"{self.block})"
            )

    def _checked(self) -> Iterator[TraceRow]:
        row = None
        for row in read_trace(self.file):
            if row.hash_ids and max(row.hash_ids) > MOST_HASH_ID:
                raise UsageError(
                    f"{self.file}: hash_ids: {max(row.hash_ids)} is over {MOST_HASH_ID}: "
                    "number them from 0 on"
                )
            yield row
        if row is None:
            raise UsageError(f"{self.file}: has no rows: give a trace of at least one request")

    @property
    def _scale(self) -> TraceScale:
        return TraceScale(
            block_tokens=self.block,
            output_share=self.output_share,
            max_output_tokens=self.max_output,
            max_prompt_tokens=room(self.max_context, 1) - self.max_output,
        )
