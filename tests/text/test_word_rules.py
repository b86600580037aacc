"""Each named rule cuts where its model's authors said, and loses nothing of any text."""

from functools import cache
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from transformers.integrations.gguf import gguf_tokenizer_mapping as transformers_rules

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.testing.text_corpus import CORPUS, DIGITS_AFTER_BLANKS
from antiphon.text import Tokenizer
from antiphon.text.word_rules import COMPOSED, WORD_RULES, word_rule

AWKWARD = st.one_of(
    st.characters(codec="utf-8"),
    st.sampled_from("aZ 1\n\t\r'/_!é\u0301\u200d½ǅʰ中"),
    st.sampled_from(("'s", "'LL", "McDonald", "camelCase", "HTTPServer", "12345", " \n ", "//\n")),
    st.sampled_from(CORPUS + DIGITS_AFTER_BLANKS),
)
TEXTS = st.lists(AWKWARD, max_size=20).map("".join)


@cache
def tokenizer(pre: str) -> Tokenizer:
    """Bytes, and merges that cross the borders of words, so that a border shows in the ids."""
    merges = ("Ġ a", "' s", "Ċ Ċ", "1 2", "a Z", "Ġ Ġ")
    tokens = (*sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in merges))
    return Tokenizer.load(
        GgufTokenizer(
            path=Path("bytes.gguf"),
            model="gpt2",
            pre=pre,
            tokens=tokens,
            merges=merges,
            scores=(),
            token_types=(),
            chat_template=None,
            eos_token_ids=(),
            bos_token_id=None,
            add_bos=False,
        )
    )


def words(rule: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in rule.pre_tokenize_str(text)]


@pytest.mark.parametrize("pre", WORD_RULES)
@given(text=TEXTS)
@settings(max_examples=40, deadline=None)
def test_every_text_comes_back(pre: str, text: str) -> None:
    wanted = normalize("NFC", text) if pre in COMPOSED else text
    assert tokenizer(pre).decode(tokenizer(pre).encode(text)) == wanted


@pytest.mark.parametrize(
    "pre", sorted({*WORD_RULES} & {*transformers_rules.GGUF_PRE_TOKENIZER_SPLITS})
)
@given(text=TEXTS)
@settings(max_examples=80, deadline=None)
def test_the_words_that_transformers_cuts(pre: str, text: str) -> None:
    pattern = transformers_rules.GGUF_PRE_TOKENIZER_SPLITS[pre]
    theirs = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    assert words(word_rule(pre), text) == words(theirs, text)


@pytest.mark.parametrize(
    ("pre", "cut"),
    [
        ("default", "It|'|s| |123|45|\n\n | x| camelCase|/"),
        ("default", "a|?!,$<=>|b| |(|12|)| ©|½"),
        ("gpt-2", "It|'s| 12345|\n\n | x| camelCase|/"),
        ("llama-bpe", "It|'s| |123|45|\n\n| | x| camelCase|/"),
        ("dbrx", "It|'s| |123|45|\n\n| | x| camelCase|/"),
        ("qwen2", "It|'s| |1|2|3|4|5|\n\n| | x| camelCase|/"),
        ("smollm", "It|'s| |1|2|3|4|5|\n\n | x| camelCase|/"),
        ("refact", "It|'s| |1|2|3|4|5|\n\n | x| camelCase|/"),
        ("tekken", "It|'s| |1|2|3|4|5|\n\n| | x| camel|Case|/"),
        ("gpt-4o", "It's| |123|45|\n\n| | x| camel|Case|/"),
    ],
)
def test_words(pre: str, cut: str) -> None:
    assert words(word_rule(pre), cut.replace("|", "")) == cut.split("|")
