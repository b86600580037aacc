"""Chance that depends on what is drawn, not on when: a counter-based generator."""

from hashlib import blake2b

_PERSON = b"antiphon.sample"
_WORD_BYTES = 16


def uniform(seed: int, sequence: int, index: int) -> float:
    """A number in [0, 1), the same for the same (seed, sequence, index) on every machine.

    BLAKE2b of the three counters keeps 53 bits. A sequence's draws depend neither on its batch nor
    on where it is continued. `seed` fits in 128 bits, signed.
    """
    words = (seed, sequence, index)
    message = b"".join(word.to_bytes(_WORD_BYTES, "little", signed=True) for word in words)
    digest = blake2b(message, digest_size=8, person=_PERSON).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
