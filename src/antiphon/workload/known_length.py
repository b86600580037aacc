"""Asks whose answers have a known length: greedy, and on to `max_tokens` whatever the model says.

Their numbers are 0 until `numbered` counts them.
"""

from antiphon.core.draws import Draws

from .asks import Api, Ask


def known_length(
    text: str,
    output_tokens: int,
    draws: Draws,
    *purpose: str | int,
    api: Api = Api.CHAT,
    model: str | None = None,
) -> Ask:
    """An ask for exactly so many tokens."""
    return Ask(
        number=0,
        text=text,
        max_tokens=output_tokens,
        temperature=0.0,
        seed=draws.below(2**31, *purpose, "seed"),
        ignore_eos=True,
        api=api,
        model=model,
    )
