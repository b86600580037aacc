"""How byte-level BPE cuts text into words before it merges, by the names that GGUF files use.

A file says which rule its model was trained with (`tokenizer.ggml.pre`): the name of the model that
had the rule first. The patterns are those that the models' authors published in their
tokenizer.json; which names share one, llama.cpp's `llama-vocab.cpp` says.
"""

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = rf"{_SUFFIX}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + _END
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_CASED = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+SUFFIX|{_LEAD}{_UPPER}+{_LOWER}*SUFFIX"
    rf"|DIGITS| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + _END
)
"""A word ends where lower case turns to upper case."""
_TEKKEN = _CASED.replace("SUFFIX", "").replace("DIGITS", r"\p{N}")
_GPT4O = _CASED.replace("SUFFIX", f"{_SUFFIX}?").replace("DIGITS", r"\p{N}{1,3}")

_PATTERNS = {
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe"), _LLAMA3
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan"), _QWEN2),
    "tekken": _TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
}
_GPT2 = ("default", "gpt-2", "mpt", "olmo")
_DIGITS_ALONE = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")

WORD_RULES = tuple(sorted((*_PATTERNS, *_GPT2, *_DIGITS_ALONE)))
"""The names that are known."""

WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken")
"""The models that take a word which is itself a token whole, without merging."""

COMPOSED = ("qwen2",)
"""The models that compose characters (Unicode's NFC) before anything else."""


def word_rule(name: str) -> PreTokenizer:
    """The rule of this name, one of `WORD_RULES`; bytes become GPT-2's printable characters."""
    if name in _PATTERNS:
        words = Split(Regex(_PATTERNS[name]), behavior="isolated")
        return Sequence([words, ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _GPT2:
        return gpt2
    # GPT-2's words are not enough although no merge holds a digit: in "a\n\n1" they end the blank
    # run one character early, and the two line breaks are not merged.
    return Sequence([Digits(individual_digits=True), gpt2])
