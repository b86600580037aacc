"""Some requests, run to their ends by the calling thread."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from antiphon.core.requests import RequestBook, SoleWorker
from antiphon.core.token_runs import each_token
from antiphon.errors import BugError, ClientError
from antiphon.live.loaded_model import LoadedModel
from antiphon.text import SequenceText
from antiphon.types import (
    Abort,
    Command,
    Deliver,
    DeliverRun,
    Dispatch,
    EndSequence,
    FinishReason,
    Incarnation,
    Logprobs,
    Prefilled,
    Rejected,
    Request,
    RequestId,
    SchedulerEvent,
    Settle,
    StepPlan,
    TokenGenerated,
    TokenId,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)

from .output import CompletionOutput, RequestOutput


class Batch:
    """Runs some requests to their ends. The scheduler and engine are idle before and after.

    What is delivered and how a request ends is decided by a `RequestBook`, as in the server.
    """

    def __init__(self, model: LoadedModel, answers: Mapping[RequestId, "Answer"]) -> None:
        self._scheduler = model.scheduler
        self._engine = model.engine
        worker = WorkerId("llm")
        self._book = RequestBook(SoleWorker(worker))
        info = WorkerInfo(
            id=worker,
            incarnation=Incarnation("this process"),
            model=model.info,
            max_model_len=model.max_model_len,
        )
        self._book.observe(WorkerJoined(info), time.monotonic())
        self._answers = answers
        self._open = sum(len(answer.sequences) for answer in answers.values())

    def run(self, show_progress: bool) -> None:
        """Raises `ClientError` before the first step if a request can never run here."""
        try:
            for place, answer in enumerate(self._answers.values()):
                self._execute(self._book.start(answer.request, time.monotonic()))
                if answer.rejected is not None:
                    message, code = answer.rejected.message, answer.rejected.reason.value
                    raise wrong_prompt(place, message, code)
            with _bar(self._open, show_progress) as bar, _held_interrupts() as interrupts:
                task = bar.add_task("", total=self._open)
                while self._open:
                    if interrupts:
                        raise KeyboardInterrupt
                    self._step()
                    bar.update(task, completed=bar.tasks[0].total - self._open)  # type: ignore[operator]
        finally:
            for id in self._answers:
                self._execute(self._book.cancel(id, time.monotonic()))

    def _step(self) -> None:
        now = time.monotonic()
        events: list[SchedulerEvent] = list(self._scheduler.expire(now))
        plan = self._scheduler.step(now)
        if plan is None and not events:
            raise BugError(f"nothing can run, but {self._open} sequences have not ended")
        if plan is not None:
            events += self._forward(plan)
        for event in events:
            if isinstance(event, Prefilled):
                raise BugError(f"{event.request} was prefilled for another worker: there is none")
            self._execute(self._book.heard(event, time.monotonic()))

    def _forward(self, plan: StepPlan) -> Sequence[SchedulerEvent]:
        try:
            result = self._engine.forward(plan)
        except BaseException:
            self._scheduler.fail(plan, "the engine failed in this step", time.monotonic())
            raise
        return self._scheduler.complete(plan, result, time.monotonic())

    def _execute(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Dispatch(request=request):
                    now = time.monotonic()
                    answer = replace(self._scheduler.add(request, now), attempt=request.attempt)
                    self._execute(self._book.heard(answer, now))
                case Deliver(said) | DeliverRun(said):
                    sequence = self._answers[said.request].sequences[said.sequence]
                    if any(sequence.push(token) for token in each_token(said)):
                        now = time.monotonic()
                        stop = FinishReason.STOP
                        self._execute(
                            self._book.cancel(said.request, now, said.sequence, reason=stop)
                        )
                case Abort(request=request, sequence=sequence):
                    self._scheduler.abort(request, time.monotonic(), sequence)
                case EndSequence():
                    answer = self._answers[command.request]
                    answer.sequences[command.sequence].end(command.reason, command.message)
                    self._open -= 1
                case Settle(record=record, rejected=rejected):
                    answer = self._answers[record.request]
                    answer.cached_tokens, answer.rejected = record.cached_tokens, rejected
                case _:
                    raise BugError(f"one worker needs no {type(command).__name__}")


class Answer:
    """One request and what has come of it so far."""

    def __init__(self, request: Request, prompt: str | None, model: LoadedModel) -> None:
        self.request = request
        self.prompt = prompt
        self.cached_tokens = 0
        self.rejected: Rejected | None = None
        self.sequences = [
            _Sequence(SequenceText(request, model.tokenizer)) for _ in range(request.sampling.n)
        ]

    def result(self) -> RequestOutput:
        """The frozen result."""
        asked = self.request.sampling.logprobs is not None
        return RequestOutput(
            prompt=self.prompt,
            prompt_token_ids=self.request.prompt,
            cached_tokens=self.cached_tokens,
            outputs=tuple(
                CompletionOutput(
                    index=index,
                    text="".join(sequence.pieces),
                    token_ids=tuple(sequence.tokens),
                    finish_reason=sequence.reason,
                    logprobs=tuple(sequence.logprobs) if asked else None,
                    message=sequence.message,
                )
                for index, sequence in enumerate(self.sequences)
            ),
        )


@dataclass(slots=True, eq=False)
class _Sequence:
    """One growing completion."""

    text: SequenceText
    pieces: list[str] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    reason: FinishReason = FinishReason.ABORTED
    message: str = ""

    def push(self, token: TokenGenerated) -> bool:
        """Take a token; returns whether a stop string came up."""
        self.tokens.append(token.token)
        if token.logprobs is not None:
            self.logprobs.append(token.logprobs)
        delta, _ = self.text.push(token)
        self.pieces.append(delta.text)
        return delta.stopped is not None

    def end(self, reason: FinishReason, message: str) -> None:
        """No more tokens come."""
        self.pieces.append(self.text.finish().text)
        self.reason, self.message = reason, message


def wrong_prompt(place: int, message: str, code: str | None = None) -> ClientError:
    """The error of prompt number `place`."""
    return ClientError(f"prompt {place}: {message}", field=f"prompts[{place}]", code=code)


@contextmanager
def _bar(total: int, show: bool) -> Iterator[Progress]:
    """A bar on stderr that goes away when it is done."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("sequences"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=console.is_terminal, disable=not show
    ) as bar:
        yield bar


@contextmanager
def _held_interrupts() -> Iterator[list[int]]:
    """Ctrl-C fills the list instead of tearing a step apart; the second one works as usual.

    Only in the main thread: elsewhere Python delivers no signals, and the list stays empty.
    """
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(number: int, _: object) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, previous)
        if seen and sys.exc_info()[0] is None:
            raise KeyboardInterrupt
