"""Text ↔ token ids of one model."""

import json
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import tokenizers

from antiphon.checkpoint.tokenizer_source import GgufTokenizer, TokenizerFiles, TokenizerSource
from antiphon.errors import ClientError, ModelFileError
from antiphon.types import TokenId

from .gguf_tokenizer import build
from .special_text import SpecialText
from .token_pieces import PieceTable, Spelling, piece_bytes


class Tokenizer:
    """One model's tokenizer. Immutable to its users and safe to call from several threads.

    Encoding lets other threads run: the library's batch calls give the interpreter lock back, its
    single ones keep it. There are two backends since reading special tokens is state of a backend:
    one shared by both ways of reading would have to be locked.

    `special` knows how special tokens are spelled. `bos_token` and `eos_token` are what a chat
    template calls them ("" when the model has none). `add_bos` says whether a plain prompt of this
    model starts with the beginning-of-sequence token.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        spelling: Spelling,
        source: TokenizerSource,
        *,
        strips_leading_space: bool = False,
    ) -> None:
        self._backend = backend
        self._backend.encode_special_tokens = True
        self._special_backend = _twin(backend)
        self._special_backend.encode_special_tokens = False
        self._most_bytes_per_token = _most_bytes_per_token(backend, spelling)
        self.strips_leading_space = strips_leading_space
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self.eos_token_ids = source.eos_token_ids
        self.bos_token_id = source.bos_token_id
        self.add_bos = source.add_bos
        added = backend.get_added_tokens_decoder()
        self.special = SpecialText({i: token for i, token in added.items() if token.special})
        self._special_ids = frozenset(self.special.ids.values())
        unknown = getattr(backend.model, "unk_token", None)
        self._guarded_ids = self._special_ids - {self.special.ids.get(unknown or "")}
        self.bos_token = self._named(source, "bos_token", source.bos_token_id)
        self.eos_token = self._named(source, "eos_token", *source.eos_token_ids[:1])

        def spell(token_id: TokenId) -> bytes | None:
            token = self._spelled(token_id)
            return None if token is None else piece_bytes(token, spelling)

        self.pieces = PieceTable(spell)
        """Bytes of each token, specials spelled out."""
        self.visible_pieces = PieceTable(
            lambda token_id: b"" if token_id in self._special_ids else spell(token_id)
        )
        """Bytes of each token, nothing for specials."""

    @classmethod
    def load(cls, source: TokenizerSource) -> "Tokenizer":
        """Build the tokenizer of a checkpoint. Raises `ModelFileError` naming file or key."""
        match source:
            case GgufTokenizer():
                backend, path = build(source), source.path
            case TokenizerFiles():
                backend, path = _read(source), source.tokenizer_json
        spelling, strips = _decoding(backend, path)
        return cls(backend, spelling, source, strips_leading_space=strips)

    def encode(
        self, text: str, *, specials: bool = False, add_bos: bool = False
    ) -> tuple[TokenId, ...]:
        """Token ids of `text`, after the beginning-of-sequence token if `add_bos` (and it exists).

        With `specials`, text that spells a special token becomes it: for a template's own text.
        Without, such text is encoded like any other and never becomes the special token: for
        everything that a user wrote. Raises `ClientError` for a lone surrogate.
        """
        backend = self._special_backend if specials else self._backend
        try:
            [encoding] = backend.encode_batch_fast([text], add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise ClientError("the text has a lone surrogate: not valid Unicode") from error
            raise
        ids = encoding.ids
        if not specials and not self._guarded_ids.isdisjoint(ids):
            ids = self._without_specials(text)
        if add_bos and self.bos_token_id is not None:
            return (self.bos_token_id, *ids)
        return tuple(ids)

    def fewest_tokens(self, size_bytes: int) -> int:
        """A lower bound of the tokens of any text of so many UTF-8 bytes, without encoding it.

        Holds for text whose bytes the vocabulary knows. 0 for a model whose tokens have no longest
        text.
        """
        return math.ceil(size_bytes / self._most_bytes_per_token)

    def decode(self, ids: Iterable[TokenId], *, skip_specials: bool = True) -> str:
        """Text of `ids`. Bytes that are not UTF-8 become U+FFFD; unknown ids add nothing."""
        pieces = self.visible_pieces if skip_specials else self.pieces
        joined = b"".join([pieces[token_id] for token_id in ids])
        if self.strips_leading_space:
            joined = joined.removeprefix(b" ")
        return joined.decode("utf-8", "replace")

    def token_bytes(self, token_id: TokenId) -> bytes:
        """The bytes that the token stands for, perhaps a part of a character; b"" if unknown."""
        return self.pieces[token_id]

    def token_text(self, token_id: TokenId) -> str:
        """The token alone as text, specials spelled out; parts of characters become U+FFFD."""
        return self.pieces[token_id].decode("utf-8", "replace")

    def as_json(self) -> str:
        """The tokenizer as the tokenizer.json of a Hugging Face folder."""
        return self._backend.to_str()

    def is_special(self, token_id: TokenId) -> bool:
        """Whether the token is a control token: no part of the text."""
        return token_id in self._special_ids

    def _without_specials(self, text: str) -> list[TokenId]:
        """Encode anew with the text cut behind the first character of each special token in it.

        Needed where merging alone arrives at a special token (vocabularies that look a whole word
        up first), which `encode_special_tokens` does not prevent.
        """
        [encoding] = self._backend.encode_batch([text], add_special_tokens=False)  # has offsets
        spans = [
            span
            for token_id, span in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id in self._guarded_ids
        ]
        for start, end in spans:
            if end - start < 2:
                raise ClientError(f"the text {text[start:end]!r} is reserved by this model")
        cuts = [0, *(start + 1 for start, _ in spans), len(text)]
        return [token_id for a, b in pairwise(cuts) for token_id in self.encode(text[a:b])]

    def _spelled(self, token_id: TokenId) -> str | None:
        try:
            return self._backend.id_to_token(token_id)
        except OverflowError:
            return None

    def _named(self, source: TokenizerSource, key: str, *ids: TokenId | None) -> str:
        """The spelling of a token: as the config names it, else by its id."""
        named: Any = source.config.get(key) if isinstance(source, TokenizerFiles) else None
        if isinstance(named, dict):
            named = named.get("content")
        if isinstance(named, str):
            return named
        return next((self._spelled(i) or "" for i in ids if i is not None), "")


def _read(source: TokenizerFiles) -> tokenizers.Tokenizer:
    try:
        content = source.tokenizer_json.read_bytes()
    except OSError as error:
        raise ModelFileError(source.tokenizer_json, f"can't be read: {error.strerror}") from error
    try:
        backend = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise ModelFileError(source.tokenizer_json, f"not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


def _decoding(backend: tokenizers.Tokenizer, path: object) -> tuple[Spelling, bool]:
    """How the vocabulary spells bytes, and whether the text's first space is dropped."""
    decoder: dict[str, Any] = {"type": "none"}
    if backend.decoder is not None:
        decoder = json.loads(backend.decoder.__getstate__())
    steps: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return Spelling.BYTE_LEVEL, False
    if "Metaspace" in kinds:
        prepend = steps[kinds.index("Metaspace")].get("prepend_scheme", "always")
        return Spelling.SENTENCEPIECE, prepend != "never"
    if "ByteFallback" in kinds:
        return Spelling.SENTENCEPIECE, "Strip" in kinds
    raise ModelFileError(
        path,
        f"decoder {'+'.join(kinds)} is not supported (known: ByteLevel, ByteFallback, Metaspace)",
    )


def _twin(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A second backend that encodes alike, over the same model: vocabularies are large."""
    twin = tokenizers.Tokenizer(backend.model)
    if backend.normalizer is not None:
        twin.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        twin.pre_tokenizer = backend.pre_tokenizer
    added = backend.get_added_tokens_decoder()
    twin.add_tokens([added[id] for id in sorted(added)])
    if twin.get_added_tokens_decoder() == added:
        return twin
    return tokenizers.Tokenizer.from_str(backend.to_str())  # ids with gaps can't be added anew


_SHRINKS = {"NFC": 3, "Prepend": 1, "Replace": 1}
"""How much shorter, as a factor, known normalizers can make text."""
_BLANK_TO_BAR = ({"String": " "}, "▁")
"""The only replacement that is known: SentencePiece's."""


def _most_bytes_per_token(backend: tokenizers.Tokenizer, spelling: Spelling) -> float:
    """The most UTF-8 bytes of a text that one token can stand for; infinite if there is no limit.

    There is none where an unknown token takes in any number of characters, where an added token
    swallows the blanks beside it, or after a normalizer that is not known.
    """
    added = backend.get_added_tokens_decoder().values()
    if spelling is Spelling.SENTENCEPIECE and not getattr(backend.model, "byte_fallback", False):
        return math.inf
    if any((token.lstrip or token.rstrip) and not token.special for token in added):
        return math.inf
    shrinks = 1
    for step in _normalizing(backend):
        if step["type"] == "Replace" and (step["pattern"], step["content"]) != _BLANK_TO_BAR:
            return math.inf
        if step["type"] not in _SHRINKS:
            return math.inf
        shrinks *= _SHRINKS[step["type"]]
    width = len if spelling is Spelling.BYTE_LEVEL else _utf8_len  # ByteLevel: a byte a character
    longest = max(map(width, backend.get_vocab(with_added_tokens=False)), default=1)
    longest_added = max((_utf8_len(token.content) for token in added), default=1)
    return shrinks * max(longest, longest_added)


def _utf8_len(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _normalizing(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.normalizer is None:
        return []
    whole: dict[str, Any] = json.loads(backend.normalizer.__getstate__())
    return whole.get("normalizers", [whole])
