"""How long requests decode, and how much of a prompt is computed: learned from those that were."""

from collections.abc import Set

from antiphon.types import RequestId, Seconds

_WEIGHT = 1 / 32
"""Of the newest one in a mean."""


class Turnover:
    """Means over the last requests. `decode_s`: from where a request begins to decode to its end;
    None while no request has ended. `computed_share`: of a prompt's tokens, those not cached."""

    def __init__(self) -> None:
        self.decode_s: Seconds | None = None
        self.computed_share = 1.0
        self._began: dict[RequestId, Seconds] = {}

    def requests(self) -> Set[RequestId]:
        """Those that decode, as far as is known."""
        return self._began.keys()

    def decodes_s(self, now: Seconds) -> Seconds:
        """How long a request is taken to decode: as long as the last ones did.

        Before one has ended, twice as long as those that decode have by now: seen at any moment of
        its life, a request is half way through, by the mean. So nothing is taken to last that has
        only begun, and what does last is found out while it does.
        """
        if self.decode_s is not None:
            return self.decode_s
        if not self._began:
            return 0.0
        return 2 * sum(now - began for began in self._began.values()) / len(self._began)

    def placed(self, tokens: int, computed: int) -> None:
        """Mutates: of a prompt of so many tokens so many are to be computed."""
        self.computed_share += _WEIGHT * (computed / max(1, tokens) - self.computed_share)

    def began(self, request: RequestId, now: Seconds) -> None:
        """Mutates: it decodes from now on; said again, from now on somewhere else."""
        self._began[request] = now

    def ended(self, request: RequestId, now: Seconds) -> None:
        """Mutates: it is over."""
        began = self._began.pop(request, None)
        if began is None:
            return
        if self.decode_s is None:
            self.decode_s = now - began
        self.decode_s += _WEIGHT * (now - began - self.decode_s)

    def broke_off(self, request: RequestId) -> None:
        """Mutates: it decodes no more, and is not over."""
        self._began.pop(request, None)
