"""Chance as a function: counter-based draws, the same on every machine and in every process."""

from hashlib import blake2b

_WORD_BYTES = 16


def uniform(domain: str, *words: int) -> float:
    """A number in [0, 1) that depends on `domain` and `words` alone.

    `domain` (at most 16 bytes of ASCII) keeps the draws of different purposes apart; each word fits
    in 128 bits, signed. BLAKE2b of the words keeps 53 bits.
    """
    message = b"".join(word.to_bytes(_WORD_BYTES, "little", signed=True) for word in words)
    digest = blake2b(message, digest_size=8, person=domain.encode("ascii")).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def below(bound: int, domain: str, *words: int) -> int:
    """A whole number in 0 … `bound` − 1, for `bound` up to 2**40."""
    return int(uniform(domain, *words) * bound)
