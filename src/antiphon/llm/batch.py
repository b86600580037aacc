"""Some requests, run to their ends by the calling thread."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from antiphon.errors import BugError, ClientError
from antiphon.live.loaded_model import LoadedModel
from antiphon.text import TextStream
from antiphon.types import (
    Event,
    FinishReason,
    Logprobs,
    Rejected,
    Request,
    RequestId,
    SamplingParams,
    SequenceEnded,
    Started,
    StepPlan,
    TokenGenerated,
    TokenId,
)

from .output import CompletionOutput, RequestOutput


class Batch:
    """Runs some requests to their ends. The scheduler and engine are idle before and after."""

    def __init__(self, model: LoadedModel, answers: Mapping[RequestId, "Answer"]) -> None:
        self._scheduler = model.scheduler
        self._engine = model.engine
        self._answers = answers
        self._open = sum(answer.open for answer in answers.values())

    def run(self, show_progress: bool) -> None:
        """Raises `ClientError` before the first step if a request can never run here."""
        try:
            for place, answer in enumerate(self._answers.values()):
                added = self._scheduler.add(answer.request, time.monotonic())
                if isinstance(added, Rejected):
                    raise wrong_prompt(place, added.message, added.reason.value)
            with _bar(self._open, show_progress) as bar, _held_interrupts() as interrupts:
                task = bar.add_task("", total=self._open)
                while self._open:
                    if interrupts:
                        raise KeyboardInterrupt
                    self._step()
                    bar.update(task, completed=bar.tasks[0].total - self._open)  # type: ignore[operator]
        finally:
            for id in self._answers:
                self._scheduler.abort(id, time.monotonic())

    def _step(self) -> None:
        now = time.monotonic()
        events = list(self._scheduler.expire(now))
        plan = self._scheduler.step(now)
        if plan is None and not events:
            raise BugError(f"nothing can run, but {self._open} sequences have not ended")
        if plan is not None:
            events += self._forward(plan)
        for event in events:
            self._take(event)

    def _forward(self, plan: StepPlan) -> Sequence[Event]:
        try:
            result = self._engine.forward(plan)
        except BaseException:
            self._scheduler.fail(plan, "the engine failed in this step", time.monotonic())
            raise
        return self._scheduler.complete(plan, result, time.monotonic())

    def _take(self, event: Event) -> None:
        answer = self._answers[event.request]
        match event:
            case Started():
                answer.cached_tokens = event.cached_tokens
            case TokenGenerated() if not answer.sequences[event.sequence].ended:
                sequence = answer.sequences[event.sequence]
                sequence.push(event)
                if sequence.stopped:
                    self._scheduler.abort(event.request, time.monotonic(), event.sequence)
                    self._end(sequence, FinishReason.STOP)
            case SequenceEnded() if not answer.sequences[event.sequence].ended:
                self._end(answer.sequences[event.sequence], event.reason, event.message)
            case _:
                pass

    def _end(self, sequence: "_Sequence", reason: FinishReason, message: str = "") -> None:
        sequence.end(reason, message)
        self._open -= 1


class Answer:
    """One request and what has come of it so far."""

    def __init__(self, request: Request, prompt: str | None, model: LoadedModel) -> None:
        self.request = request
        self.prompt = prompt
        self.cached_tokens = 0
        self.sequences = [
            _Sequence(request.sampling, TextStream(model.tokenizer, stop=request.sampling.stop))
            for _ in range(request.sampling.n)
        ]

    @property
    def open(self) -> int:
        """How many sequences have not ended."""
        return sum(not sequence.ended for sequence in self.sequences)

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
                    text="".join(sequence.text),
                    token_ids=tuple(sequence.tokens),
                    finish_reason=sequence.reason or FinishReason.ABORTED,
                    logprobs=tuple(sequence.logprobs) if asked else None,
                    message=sequence.message,
                )
                for index, sequence in enumerate(self.sequences)
            ),
        )


@dataclass(slots=True, eq=False)
class _Sequence:
    """One growing completion."""

    sampling: SamplingParams
    stream: TextStream
    text: list[str] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    stopped: bool = False
    """A stop string came up."""
    reason: FinishReason | None = None
    message: str = ""

    @property
    def ended(self) -> bool:
        return self.reason is not None

    def push(self, event: TokenGenerated) -> None:
        self.tokens.append(event.token)
        if event.logprobs is not None:
            self.logprobs.append(event.logprobs)
        if event.token in self.sampling.stop_token_ids and (
            len(self.tokens) >= self.sampling.min_tokens
        ):
            return  # It marks the end and is no part of the text.
        delta = self.stream.push(event.token)
        self.text.append(delta.text)
        self.stopped = delta.stopped is not None

    def end(self, reason: FinishReason, message: str) -> None:
        self.text.append(self.stream.finish().text)
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
