"""What a request takes of a fleet, in tokens of prompt and output."""

from antiphon.types import Outcome, Request, RequestRecord

_WEIGHT = 1 / 32
"""Of the newest answer in the mean."""


class RequestCosts:
    """Expects of an answer that it is as long as the last ones were; what it was is known later."""

    def __init__(self) -> None:
        self._mean_output = 0.0

    def expected(self, request: Request) -> int:
        """Its prompt, and the output of all its sequences. Does not mutate."""
        sampling, output = request.sampling, self._mean_output
        if sampling.max_tokens is not None:
            output = min(output, sampling.max_tokens)
        return len(request.prompt) + sampling.n * round(output)

    def actual(self, record: RequestRecord) -> int:
        """What it took. Mutates: learns from an answer that came to its end."""
        if record.outcome is Outcome.FINISHED:
            output = record.output_tokens / len(record.finish_reasons)
            self._mean_output += _WEIGHT * (output - self._mean_output)
        return record.prompt_tokens + record.output_tokens
