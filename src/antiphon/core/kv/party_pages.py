"""How many pages the sequences of one request take: the one count for whoever routes and runs."""

from collections.abc import Iterable


def party_pages(
    prompt_tokens: int, beyond: Iterable[int], *, page_tokens: int, block_tokens: int
) -> int:
    """Pages of sequences that have the same prompt, and `beyond` it so many tokens each.

    They share the prompt's whole blocks; each has the rest of the prompt in pages of its own.
    """
    tail = prompt_tokens % block_tokens
    own = sum(-(-(tail + tokens) // page_tokens) for tokens in beyond)
    return (prompt_tokens - tail) // page_tokens + own
