"""The bytes that each token stands for, so that text can be put together token by token.

Two spellings exist. Byte-level vocabularies (GPT-2 and later) write each byte as one printable
character. SentencePiece writes text as it is, a space as "▁" and a lone byte as "<0xNN>".
A character of a byte-level token that is no byte's spelling makes the whole token literal text:
added tokens such as "<｜end｜>" are stored that way.
"""

import re
from collections.abc import Callable
from enum import Enum

from antiphon.types import TokenId

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Enum):
    """How a vocabulary writes bytes."""

    BYTE_LEVEL = "byte-level"
    SENTENCEPIECE = "sentencepiece"


def piece_bytes(token: str, spelling: Spelling) -> bytes:
    """The bytes that `token`, as it is written in the vocabulary, adds to the text."""
    if spelling is Spelling.BYTE_LEVEL:
        try:
            return bytes(_BYTE_OF[character] for character in token)
        except KeyError:
            return token.encode()
    if byte := _BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace("▁", " ").encode()


class PieceTable(dict[TokenId, bytes]):
    """Token id → bytes, worked out when first asked for and kept.

    `spell` returns the bytes of an id, or None for an id outside the vocabulary (which adds
    nothing to the text and is not kept, so that the table can't outgrow the vocabulary).
    """

    def __init__(self, spell: Callable[[TokenId], bytes | None]) -> None:
        super().__init__()
        self._spell = spell

    def __missing__(self, token_id: TokenId) -> bytes:
        """Works out, and keeps, the bytes of one id."""
        piece = self._spell(token_id)
        if piece is None:
            return b""
        self[token_id] = piece
        return piece


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 is itself, every other byte the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in range(256) if byte in printable} | {
        chr(0x100 + offset): byte for offset, byte in enumerate(others)
    }


_BYTE_OF = _byte_alphabet()
