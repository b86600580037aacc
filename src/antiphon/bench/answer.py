"""What one user got, and when."""

from dataclasses import dataclass

from antiphon.types import CallError, Seconds, TokenSource


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A token's text, its log-probability, and the likeliest ones there, best first."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One completion: its whole text and why it ended (None: it did not).

    `scored`: one entry a token if log-probabilities were asked for, else empty. `aside`: content
    that is not the answer's text, such as reasoning and calls of tools.
    """

    text: str
    finish_reason: str | None
    scored: tuple[ScoredToken, ...] = ()
    aside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome of one ask. Times are on the client's monotonic clock.

    `due_at` is when the ask was to be sent, whatever the client was busy with: latencies count from
    it (no coordinated omission). `token_at` has one stamp for each piece of content that came; an
    answer that is not streamed has one. `cached_tokens` of the prompt needed no compute; like
    `prompt_tokens` None if the server does not say. `error`
    says what went wrong, and `failure` of which kind it was; empty and None: nothing did.
    """

    number: int
    due_at: Seconds
    sent_at: Seconds
    ended_at: Seconds
    status: int
    choices: tuple[Choice, ...] = ()
    token_at: tuple[Seconds, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    cached_tokens: int | None = None
    counted_by: TokenSource = TokenSource.USAGE
    request_id: str = ""
    error: str = ""
    failure: CallError | None = None

    @property
    def ok(self) -> bool:
        """Every choice came to its end."""
        ended = self.choices and all(choice.finish_reason for choice in self.choices)
        return not self.error and self.status == 200 and bool(ended)

    @property
    def ttft_s(self) -> Seconds | None:
        """Time to first content. None: none came."""
        return self.token_at[0] - self.due_at if self.token_at else None

    @property
    def gaps_s(self) -> tuple[Seconds, ...]:
        """Times between one piece of content and the next."""
        return tuple(b - a for a, b in zip(self.token_at, self.token_at[1:], strict=False))
