"""How byte-level BPE cuts text into words before it merges, by the names that GGUF files use.

A file says which rule its model was trained with (`tokenizer.ggml.pre`): the name of the model that
had the rule first. The patterns are those that the models' authors published in their
tokenizer.json; which names share one, llama.cpp's `llama-vocab.cpp` says. Its `default`, which also
goes for files that name none, is Falcon's rule with runs of digits as words of their own.
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
_GPT2 = ("gpt-2", "mpt", "olmo")
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEFAULT = (r"[\p{P}$+<=>^~|]+", _GPT2_WORDS, r"\p{N}+", "[0-9]{3}")
"""Each cuts what those before it have left whole: punctuation first, digits by threes last."""
_DIGITS_ALONE = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")

WORD_RULES = tuple(sorted(("default", *_PATTERNS, *_GPT2, *_DIGITS_ALONE)))
"""The names that are known."""

WHOLE_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken")
"""The models that take a word which is itself a token whole, without merging."""

COMPOSED = ("qwen2",)
"""The models that compose characters (Unicode's NFC) before anything else."""


def word_rule(name: str) -> PreTokenizer:
    """The rule of this name, one of `WORD_RULES`; bytes become GPT-2's printable characters."""
    patterns = _DEFAULT if name == "default" else (_PATTERNS.get(name),)
    cuts = [Split(Regex(one), behavior="isolated") for one in patterns if one is not None]
    if cuts:
        return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
    gpt2 = ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _GPT2:
        return gpt2
    # GPT-2's words are not enough although no merge holds a digit: in "a\n\n1" they end the blank
    # run one character early, and the two line breaks are not merged.
    return Sequence([Digits(individual_digits=True), gpt2])
