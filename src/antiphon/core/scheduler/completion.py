"""What a finished step changes: KV that is there now, new tokens, ends, forks."""

from collections.abc import Iterable

from antiphon.errors import BugError
from antiphon.types import (
    FinishReason,
    Sample,
    SchedulerEvent,
    Seconds,
    SequenceFault,
    SequenceKey,
    StepResult,
    TokenGenerated,
    TokensGenerated,
)

from .batching import Flight
from .history import History
from .roster import Roster
from .sequence import SequenceState, ended_event, ending
from .sequence_memory import SequenceMemory


class Completion:
    """Takes in the result of one step after another."""

    def __init__(self, roster: Roster, memory: SequenceMemory, history: History) -> None:
        self._roster = roster
        self._memory = memory
        self._history = history

    def take(
        self, flight: Flight, result: StepResult, now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        """Apply the result; appends what happened to `events`.

        Raises `BugError` if the result does not answer each sample of the plan exactly once.
        """
        doubtful = self._take_faults(flight, result.faults, now, events)
        self._take_progress(flight, doubtful)
        self._take_samples(flight, result.samples, now, events)
        if flight.sampling:
            request, sequence = next(iter(flight.sampling))
            raise BugError(f"step {result.number} left out {request}/{sequence}")
        self._settle(flight)

    def take_runs(
        self, flight: Flight, result: StepResult, now: Seconds, events: list[SchedulerEvent]
    ) -> int:
        """Apply the result of a repeated step; returns how many passes there were.

        Raises `BugError` if it was not to be repeated so often, went on after a sequence's end, or
        does not answer each sequence.
        """
        passes = len(result.runs[0].tokens)
        if not 1 <= passes <= flight.plan.repeat or result.samples or result.faults:
            raise BugError(f"step {result.number} was not to be run {passes} times")
        memory, sampling = self._memory, flight.sampling
        between_s = result.elapsed_s * (passes - 1) / passes
        for run in result.runs:
            sequence = sampling.pop((run.request, run.sequence), None)
            if sequence is None or len(run.tokens) != passes:
                raise BugError(f"{len(run.tokens)} tokens of {run.request} were not asked for")
            sequence.in_flight = False
            sequence.computed += passes
            outputs = sequence.outputs
            sequence.take(run.tokens)
            if sequence.computed >= sequence.next_commit:
                memory.commit(sequence)
            if sequence.ended:
                continue
            owner = sequence.owner
            if not owner.marks.ids.isdisjoint(run.tokens[:-1]) and any(
                owner.marks.end(token, outputs + place)
                for place, token in enumerate(run.tokens[:-1], start=1)
            ):
                raise BugError(f"step {result.number} went on after the end of {sequence.key}")
            events.append(
                TokensGenerated(
                    request=run.request,
                    attempt=owner.request.attempt,
                    sequence=run.sequence,
                    index=outputs,
                    tokens=run.tokens,
                    seconds=between_s,
                )
            )
            self._end_if_due(sequence, now, events)
        if sampling:
            request, sequence_number = next(iter(sampling))
            raise BugError(f"step {result.number} left out {request}/{sequence_number}")
        self._settle(flight)
        return passes

    def fail(
        self, flight: Flight, message: str, now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        """Nothing that the plan computes can be trusted: all that it works for ends with an error.

        Their KV is in doubt, whether or not they were to be sampled in this step. The engine is
        told once more whom it may forget: it may not have come that far.
        """
        self._roster.forgotten += flight.plan.ended
        coming = flight.plan.awaits is not None
        for sequence in flight.computing:
            sequence.in_flight = coming
            self._memory.doubt(sequence)
            for one in (sequence, *sequence.followers):
                if not one.ended:
                    events.append(ended_event(one, FinishReason.ERROR, message))
                    self._roster.mark_ended(one, now)
        if coming:
            return  # its pages return when nothing comes into them any more
        for sequence in flight.computing:
            for one in (*sequence.followers, sequence):
                self._roster.leave(one)

    def drop(self, flight: Flight) -> None:
        """Nothing of this step counts: KV that it awaits did not come. Its sequences go on.

        How far the engine came with the plan is not known: it is told all of it once more.
        """
        self._roster.forgotten += flight.plan.ended
        for sequence in flight.computing:
            sequence.sent = 0

    def _take_faults(
        self,
        flight: Flight,
        faults: Iterable[SequenceFault],
        now: Seconds,
        events: list[SchedulerEvent],
    ) -> set[SequenceKey]:
        """End the sequences that could not be sampled; returns them."""
        doubtful: set[SequenceKey] = set()
        for fault in faults:
            key = SequenceKey(fault.request, fault.sequence)
            sequence = flight.sampling.pop(key, None)
            if sequence is None:
                raise BugError(f"a fault of {key} was not asked for")
            doubtful.add(key)
            if not sequence.ended:
                events.append(ended_event(sequence, FinishReason.ERROR, fault.message))
                self._roster.mark_ended(sequence, now)
        return doubtful

    def _take_progress(self, flight: Flight, doubtful: set[SequenceKey]) -> None:
        """What was computed is there, and complete blocks get names unless they are in doubt."""
        memory = self._memory
        for sequence, chunk in zip(flight.computing, flight.plan.chunks, strict=True):
            sequence.in_flight = False
            sequence.computed += len(chunk.tokens)
            if sequence.sources:
                memory.copied(sequence)
            if doubtful and _is_in(doubtful, sequence):
                memory.doubt(sequence)
            elif sequence.computed >= sequence.next_commit:
                memory.commit(sequence)

    def _take_samples(
        self, flight: Flight, samples: Iterable[Sample], now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        """Number and report the new tokens, and end whom they end."""
        sampling = flight.sampling
        for sample in samples:
            request, index = sample.request, sample.sequence
            sequence = sampling.pop((request, index), None)
            if sequence is None:
                raise BugError(f"a token of {request}/{index} was not asked for")
            if sequence.ended:
                continue
            owner, token = sequence.owner, sample.token
            sequence.take((token,))
            outputs = sequence.outputs
            events.append(
                TokenGenerated(
                    request=request,
                    attempt=owner.request.attempt,
                    sequence=index,
                    index=outputs - 1,
                    token=token,
                    logprobs=sample.logprobs,
                )
            )
            if token in owner.marks.ids or outputs >= owner.max_tokens:
                self._end_if_due(sequence, now, events)

    def _end_if_due(
        self, sequence: SequenceState, now: Seconds, events: list[SchedulerEvent]
    ) -> None:
        reason = ending(sequence)
        if reason is not None:
            events.append(ended_event(sequence, reason))
            self._history.finished(sequence.outputs)
            self._roster.mark_ended(sequence, now)

    def _settle(self, flight: Flight) -> None:
        """Forks first, for they read pages of those that ended; then these give everything back."""
        for leader in flight.computing:
            if leader.followers and leader.computed >= leader.prompt_len:
                self._roster.fork(leader)
        for sequence in flight.computing:
            if sequence.ended:
                self._roster.leave(sequence)
        if self._roster.prefills:
            for sequence in flight.computing:
                if sequence.running and _is_prefilled(sequence):
                    self._roster.park(sequence)


def _is_prefilled(sequence: SequenceState) -> bool:
    """Whether its part of a prefill is done: it has drawn its token."""
    return sequence.owner.lease is not None and sequence.outputs > sequence.resumed_len


def _is_in(doubtful: set[SequenceKey], sequence: SequenceState) -> bool:
    return sequence.key in doubtful or any(one.key in doubtful for one in sequence.followers)
