"""What a router expects of a fleet whose phases have their own kinds of workers."""

from dataclasses import dataclass

from antiphon.core.costs import PhaseTime, occupied_s
from antiphon.types import Seconds


@dataclass(frozen=True, slots=True)
class RolePhases:
    """Implements `core.costs.PhaseTime` and `StagedTime`: each phase by its own devices."""

    prefill: PhaseTime
    decode: PhaseTime

    def prefill_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.PhaseTime`."""
        return self.prefill.prefill_s(tokens, start)

    def occupied_s(self, tokens: int, start: int = 0) -> Seconds:
        """See `core.costs.StagedTime`; all of `prefill_s` where devices have no stages."""
        return occupied_s(self.prefill, tokens, start)

    def decode_step_s(self, sequences: int, context_tokens: int) -> Seconds:
        """See `core.costs.PhaseTime`."""
        return self.decode.decode_step_s(sequences, context_tokens)
