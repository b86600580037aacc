"""A `tokenizers.Tokenizer` from GGUF metadata, equal to the one the model was trained with.

GGUF keeps the vocabulary and names the rest. Two families (`tokenizer.ggml.model`):

    gpt2    byte-level BPE: tokens are spelled in GPT-2's byte alphabet, merges are listed, and
            `tokenizer.ggml.pre` names the rule that cuts text into words before merging
    llama   SentencePiece BPE: spaces are "▁", bytes outside the vocabulary are "<0xNN>", merges
            follow from the scores (the pair whose union scores highest merges first)
"""

from collections.abc import Iterator

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.errors import ModelFileError

from .word_rules import COMPOSED, WHOLE_WORDS_FIRST, WORD_RULES, word_rule

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
"""Values of tokenizer.ggml.token_type; 6 are bytes. 2 to 4 are matched before anything else is."""


def build(source: GgufTokenizer) -> Tokenizer:
    """Build the tokenizer. Raises `ModelFileError` that names the metadata key at fault."""
    if not source.tokens:
        raise ModelFileError(source.path, "tokenizer.ggml.tokens is empty")
    match source.model:
        case "gpt2":
            tokenizer = _byte_level(source)
        case "llama":
            tokenizer = _sentencepiece(source)
        case other:
            raise ModelFileError(
                source.path,
                f"tokenizer.ggml.model {other!r} is not supported (known: gpt2, llama)",
            )
    _add_whole_tokens(tokenizer, source)
    return tokenizer


def _byte_level(source: GgufTokenizer) -> Tokenizer:
    """Byte-level BPE. A byte that the vocabulary lacks is left out, as the original does."""
    if source.pre not in WORD_RULES:
        raise ModelFileError(
            source.path,
            f"tokenizer.ggml.pre {source.pre!r} is not supported (known: {', '.join(WORD_RULES)})",
        )
    if not source.merges:
        raise ModelFileError(source.path, "tokenizer.ggml.merges is missing or empty")
    merges = [_pair(merge) for merge in source.merges]
    tokenizer = Tokenizer(_bpe(source, merges, ignore_merges=source.pre in WHOLE_WORDS_FIRST))
    tokenizer.pre_tokenizer = word_rule(source.pre)
    if source.pre in COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(source: GgufTokenizer) -> Tokenizer:
    if len(source.scores) != len(source.tokens):
        raise ModelFileError(
            source.path,
            f"tokenizer.ggml.scores has {len(source.scores)} entries "
            f"for {len(source.tokens)} tokens",
        )
    unknown = next((t for t, kind in _typed_tokens(source) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(_bpe(source, _merges_by_score(source), unknown=unknown, bytes_too=True))
    blanks = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), blanks]) if source.space_prefix else blanks
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if source.space_prefix:
        steps.append(decoders.Strip(content=" ", left=1, right=0))
    tokenizer.decoder = decoders.Sequence(steps)
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
                source.path,
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
    Only ordinary tokens take part, so no text can merge into a control token or spell a byte.
    """
    scores = {
        token: source.scores[index]
        for index, (token, kind) in enumerate(_typed_tokens(source))
        if kind in (_NORMAL, _USER_DEFINED, _UNUSED)
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
            source.path,
            f"tokenizer.ggml.token_type has {len(source.token_types)} entries "
            f"for {len(source.tokens)} tokens",
        )
    return zip(source.tokens, source.token_types, strict=True)
