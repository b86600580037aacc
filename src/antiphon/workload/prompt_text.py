"""Text of known length: common words, a function of a seed and of what they are for.

A word is one token in common vocabularies (with the space before it), so so many words are about
so many tokens. Different purposes part within a word or two, so that nothing is shared by chance.
"""

from hashlib import blake2b

from .asks import WORDS

_DIGEST_BYTES = 64


def words(count: int, seed: int, *purpose: str | int) -> list[str]:
    """The first `count` words for that purpose. Longer runs begin alike."""
    key, number = seed.to_bytes(16, "big", signed=True), 0
    found: list[str] = []
    while len(found) < count:
        facts = "\0".join(map(str, (*purpose, number))).encode()
        digest = blake2b(facts, digest_size=_DIGEST_BYTES, key=key).digest()
        found += [WORDS[byte % len(WORDS)] for byte in digest[: count - len(found)]]
        number += 1
    return found


def text(count: int, seed: int, *purpose: str | int) -> str:
    """The same as text."""
    return " ".join(words(count, seed, *purpose))
