"""A `tokenizers.Tokenizer` from GGUF metadata, equal to the one the model was trained with.

GGUF keeps the vocabulary and names the rest. Two families (`tokenizer.ggml.model`):

    gpt2    byte-level BPE: tokens are spelled in GPT-2's byte alphabet, merges are listed, and
            `tokenizer.ggml.pre` names the rule that cuts text into words before merging
    llama   SentencePiece BPE: spaces are "▁", bytes outside the vocabulary are "<0xNN>", merges
            follow from the scores (the pair whose union scores highest merges first)
"""

from collections.abc import Callable, Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.errors import ModelFileError

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Values of tokenizer.ggml.token_type that are matched in text before anything else is."""

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def build(source: GgufTokenizer) -> Tokenizer:
    """Build the tokenizer. Raises `ModelFileError` that names the metadata key at fault."""
    if not source.tokens:
        raise ModelFileError("GGUF metadata", "tokenizer.ggml.tokens is empty")
    match source.model:
        case "gpt2":
            tokenizer = _byte_level(source)
        case "llama":
            tokenizer = _sentencepiece(source)
        case other:
            raise ModelFileError(
                "GGUF metadata",
                f"tokenizer.ggml.model {other!r} is not supported (known: gpt2, llama)",
            )
    _add_whole_tokens(tokenizer, source)
    return tokenizer


def _byte_level(source: GgufTokenizer) -> Tokenizer:
    """Byte-level BPE. A byte that the vocabulary lacks is left out, as the original does."""
    if source.pre not in _PRE_TOKENIZERS:
        raise ModelFileError(
            "GGUF metadata",
            f"tokenizer.ggml.pre {source.pre!r} is not supported "
            f"(known: {', '.join(sorted(_PRE_TOKENIZERS))})",
        )
    if not source.merges:
        raise ModelFileError("GGUF metadata", "tokenizer.ggml.merges is missing or empty")
    merges = [_pair(merge) for merge in source.merges]
    tokenizer = Tokenizer(_bpe(source, merges, ignore_merges=source.pre in _WHOLE_WORDS_FIRST))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[source.pre]()
    if source.pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(source: GgufTokenizer) -> Tokenizer:
    if len(source.scores) != len(source.tokens):
        raise ModelFileError(
            "GGUF metadata",
            f"tokenizer.ggml.scores has {len(source.scores)} entries "
            f"for {len(source.tokens)} tokens",
        )
    unknown = next((t for t, kind in _typed_tokens(source) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(_bpe(source, _merges_by_score(source), unknown=unknown, bytes_too=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    return tokenizer


def _bpe(
    source: GgufTokenizer,
    merges: list[tuple[str, str]],
    *,
    unknown: str | None = None,
    bytes_too: bool = False,
    ignore_merges: bool = False,
) -> models.BPE:
    """The merging model; handing dict and list over directly is several times faster than JSON."""
    vocab = {token: index for index, token in enumerate(source.tokens)}
    for left, right in merges:
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ModelFileError(
                "GGUF metadata",
                f"tokenizer.ggml.merges joins {left!r} and {right!r}, "
                f"but tokenizer.ggml.tokens lacks one of them or their union",
            )
    return models.BPE(
        vocab=vocab,
        merges=merges,
        unk_token=unknown,
        fuse_unk=unknown is not None,
        byte_fallback=bytes_too,
        ignore_merges=ignore_merges,
    )


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _merges_by_score(source: GgufTokenizer) -> list[tuple[str, str]]:
    """Every way to join two tokens into a third, best score first.

    SentencePiece has no merge list: it joins the adjacent pair whose union has the highest score.
    Only ordinary tokens take part, so no text can merge into a control token.
    """
    scores = {
        token: source.scores[index]
        for index, (token, kind) in enumerate(_typed_tokens(source))
        if kind not in (_UNKNOWN, _CONTROL)
    }
    ranked = [
        (-score, -cut, token)
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    ]
    ranked.sort()
    return [(token[:-cut], token[-cut:]) for _, cut, token in ranked]


def _add_whole_tokens(tokenizer: Tokenizer, source: GgufTokenizer) -> None:
    """Register the tokens that are matched whole: control ones (special), user-defined (not)."""
    always_special = {*source.eos_token_ids, source.bos_token_id}
    special, plain = [], []
    for index, (token, kind) in enumerate(_typed_tokens(source)):
        if kind in (_UNKNOWN, _CONTROL) or index in always_special:
            special.append(AddedToken(token, special=True, normalized=False))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)


def _typed_tokens(source: GgufTokenizer) -> Iterator[tuple[str, int]]:
    if not source.token_types:
        return ((token, 1) for token in source.tokens)
    if len(source.token_types) != len(source.tokens):
        raise ModelFileError(
            "GGUF metadata",
            f"tokenizer.ggml.token_type has {len(source.token_types)} entries "
            f"for {len(source.tokens)} tokens",
        )
    return zip(source.tokens, source.token_types, strict=True)


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_gpt2() -> pre_tokenizers.PreTokenizer:
    """Each digit alone, then GPT-2's words between them.

    Plain GPT-2 words are not enough although no merge holds a digit: in "a\\n\\n1" the words end
    the blank run one character early, and the two line breaks are not merged.
    """
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _words(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def rule() -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return rule


_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "llama-bpe": _words(_LLAMA3_WORDS),
    "qwen2": _words(_QWEN2_WORDS),
    "smollm": _digits_then_gpt2,
}
"""The rule behind each value of tokenizer.ggml.pre."""

_WHOLE_WORDS_FIRST = ("llama-bpe",)
"""Llama 3 takes a word that is itself a token whole, without merging."""
