"""Which workers serve a request."""

from dataclasses import dataclass

from .ids import RequestId, Seconds, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`prefill` computes the prompt and `decode` goes on; without `prefill`, `decode` does both.

    With `prefill`, `decode` is what was best now: it is chosen again when the prompt is computed.
    `exact=False`: no worker of the earlier attempt's numerics id is left. `reason` is for people.
    `fetch`: whoever computes the prompt shall take its first so many tokens from the store.
    """

    request: RequestId
    prefill: WorkerId | None
    decode: WorkerId
    reason: str
    predicted_ttft_s: Seconds | None = None
    exact: bool = True
    fetch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Nobody can take it now: ask again then, or when the fleet has changed."""

    request: RequestId
    reason: str
    ask_again_at: Seconds
