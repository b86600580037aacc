"""Records of calls, as they are observed."""

import asyncio
from collections.abc import Callable, Sequence

from antiphon.types import CallError, CallRecord, Seconds, TokenSource
from antiphon.workload import Message, Session, number_text, plural

from .answer import Answer

_AS_PLANNED = 0.95
"""Answers that have a smaller share of the tokens that were planned are too short to be silent."""


class RecordMaker:
    """Gives `observe` one record for each call that ended or could not be sent; counts them.

    `model` is that of asks that name none. `count_tokens` counts where servers do not. `started_at`
    is the run's start on the client's clock.
    """

    def __init__(
        self,
        model: str,
        observe: Callable[[CallRecord], None],
        count_tokens: Callable[[str], int] | None,
    ) -> None:
        self._model = model
        self._observe = observe
        self._count_tokens = count_tokens
        self.started_at: Seconds = 0.0
        self.calls = self.failed = 0
        self._unsent = self._pieces = 0
        self._whole = self._planned_tokens = self._got_tokens = 0
        """Answers whose length was planned, and their tokens."""

    async def ended(
        self, session: Session, turn: int, number: int, answer: Answer, history: Sequence[Message]
    ) -> None:
        """The call was sent, behind this history, and `answer` is what came of it."""
        ask, start = session.turns[turn].ask, self.started_at
        prompt, output, counted_by = await self._counts(ask.text, answer, history)
        if ask.ignore_eos and answer.failure is None and counted_by is not TokenSource.PIECES:
            self._whole += 1
            self._planned_tokens += ask.max_tokens * ask.n
            self._got_tokens += output
        self._keep(
            CallRecord(
                number=number,
                session=session.number,
                turn=turn,
                slo_class=session.slo_class,
                model=ask.model or self._model,
                due_at_s=answer.due_at - start,
                sent_at_s=answer.sent_at - start,
                token_at_s=tuple([at - start for at in answer.token_at]),
                ended_at_s=answer.ended_at - start,
                prompt_tokens=prompt,
                output_tokens=output,
                cached_tokens=answer.cached_tokens,
                counted_by=counted_by,
                status=answer.status,
                error=answer.failure,
                message=answer.error,
                request_id=answer.request_id,
            )
        )

    def unsent(
        self,
        session: Session,
        turn: int,
        number: int,
        at_s: Seconds,
        error: CallError,
        message: str,
    ) -> None:
        """The call was not sent, for this reason."""
        self._keep(
            CallRecord(
                number=number,
                session=session.number,
                turn=turn,
                slo_class=session.slo_class,
                model=session.turns[turn].ask.model or self._model,
                due_at_s=at_s,
                sent_at_s=at_s,
                ended_at_s=at_s,
                error=error,
                message=message,
            )
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the calls."""
        found: list[str] = []
        if self._unsent:
            found.append(
                f"Not sent for want of room at the client: {plural(self._unsent, 'call')}. "
                "That counts as failure, but is none of the server's."
            )
        if self._pieces:
            found.append(
                f"Of {self._pieces} answers nobody counted the tokens: "
                "each piece of content was taken for one."
            )
        if self._got_tokens < _AS_PLANNED * self._planned_tokens:
            found.append(
                "Answers were shorter than planned: planned "
                f"{number_text(self._planned_tokens / self._whole, 4)} output tokens, got "
                f"{self._got_tokens / self._whole:.1f} on average. The server does not heed "
                "`ignore_eos`: another one that does would do more work for the same load."
            )
        return tuple(found)

    async def _counts(
        self, text: str, answer: Answer, history: Sequence[Message]
    ) -> tuple[int | None, int, TokenSource]:
        """Tokens of prompt and output, and who counted them."""
        count = self._count_tokens
        if count is None or answer.counted_by is TokenSource.USAGE or not answer.token_at:
            return answer.prompt_tokens, answer.completion_tokens, answer.counted_by
        said = (str(part) for message in history for part in message.parts)
        written = (choice.aside + choice.text for choice in answer.choices)
        # In a thread: other calls go on meanwhile.
        prompt = await asyncio.to_thread(lambda: sum(map(count, (*said, text))))
        output = await asyncio.to_thread(lambda: sum(map(count, written)))
        return prompt, output, TokenSource.TOKENIZER

    def _keep(self, record: CallRecord) -> None:
        self.calls += 1
        self.failed += record.error is not None
        self._unsent += record.error is CallError.UNSENT
        self._pieces += record.error is None and record.counted_by is TokenSource.PIECES
        self._observe(record)
