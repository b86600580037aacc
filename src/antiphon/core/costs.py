"""What decisions need to know of the time that work takes. `perf/` implements these Protocols."""

from functools import lru_cache
from typing import Protocol, TypeGuard, runtime_checkable

from antiphon.types import Seconds, StepPlan, Tier


class StepTime(Protocol):
    """Predicts how long one forward pass takes on one kind of device."""

    def seconds(self, plan: StepPlan) -> Seconds:
        """Duration of `plan`; never negative. Does not mutate."""
        ...

    def repeated_s(self, plan: StepPlan, passes: int) -> Seconds:
        """Duration of so many passes in a row over a plan of decodes (see `StepPlan.repeat`)."""
        ...


class PhaseTime(Protocol):
    """Predicts the two phases of a request on one kind of device, without a plan at hand."""

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """Time to compute `tokens` tokens of one prompt from position `start` on, alone."""
        ...

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """One step in which `sequences` sequences of that total context get one token each."""
        ...


@runtime_checkable
class StagedTime(Protocol):
    """What devices in a pipeline say besides: they begin a prompt before the last is through."""

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        """How long such a prompt keeps the next from beginning: at most its `prefill_s`."""
        ...


def occupied_s(times: PhaseTime, tokens: int, start: int = 0) -> Seconds:
    """How long such a prompt keeps the next from beginning: all of its `prefill_s`, but where
    devices work in stages."""
    if _is_staged(times):
        return times.occupied_s(tokens, start)
    return times.prefill_s(tokens, start)


def _is_staged(times: PhaseTime) -> TypeGuard[StagedTime]:
    return _is_staged_type(type(times))


@lru_cache(maxsize=64)
def _is_staged_type(kind: type) -> bool:
    # `isinstance` of a protocol compares all of its members, each time.
    return issubclass(kind, StagedTime)


class TransferTime(Protocol):
    """Predicts how long KV takes from one worker to another."""

    def seconds(self, size_bytes: int) -> Seconds:
        """Time to move that many bytes, set-up included."""
        ...


class FetchTime(Protocol):
    """Predicts how long KV takes from the store into a worker's memory."""

    def seconds(self, size_bytes: int, tier: Tier) -> Seconds:
        """Time to fetch that many bytes that lie on `tier`, set-up included; 0 for none of them."""
        ...
