"""SentencePiece vocabularies from GGUF: scores decide merges, bytes fill the gaps."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, trainers

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.testing.text_corpus import CORPUS
from antiphon.text import Tokenizer

_TRAINING = (
    "The quick brown fox said that the other theatre was not there. naïve café <s>s</s> " * 3
)


def sentencepiece_source() -> GgufTokenizer:
    """A vocabulary as llama.cpp writes it: control tokens, 256 bytes, pieces scored by age."""
    backend = Backend(models.BPE())
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.train_from_iterator(
        [_TRAINING], trainers.BpeTrainer(vocab_size=160, show_progress=False)
    )
    pieces = [token for token, _ in sorted(backend.get_vocab().items(), key=lambda item: item[1])]
    pieces = [p for p in pieces if not p.startswith("<0x")]
    control = ["<unk>", "<s>", "</s>"]
    pieces = [p for p in pieces if p not in control] + ["<s", "s>"]
    tokens = control + [f"<0x{byte:02X}>" for byte in range(256)] + pieces
    return GgufTokenizer(
        path=Path("sentencepiece.gguf"),
        model="llama",
        pre="default",
        tokens=tuple(tokens),
        merges=(),
        scores=tuple([0.0] * 259 + [-float(rank) for rank in range(len(pieces))]),
        token_types=tuple([2, 3, 3] + [6] * 256 + [1] * len(pieces)),
        chat_template=None,
        eos_token_ids=(2,),
        bos_token_id=1,
        add_bos=True,
    )


SOURCE = sentencepiece_source()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(SOURCE)


def by_definition(text: str) -> list[int]:
    """SentencePiece's BPE as its authors define it: join the best-scored adjacent pair, leftmost
    first, until no pair's union is a piece; spell what is left over in bytes."""
    ids = {t: i for i, t in enumerate(SOURCE.tokens) if SOURCE.token_types[i] == 1}
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        joins = [
            (-SOURCE.scores[ids[left + right]], at)
            for at, (left, right) in enumerate(pairwise(symbols))
            if left + right in ids
        ]
        if not joins:
            break
        at = min(joins)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        number
        for symbol in symbols
        for number in ([ids[symbol]] if symbol in ids else [3 + b for b in symbol.encode()])
    ]


PIECES = st.tuples(st.integers(0, len(_TRAINING)), st.integers(1, 12)).map(
    lambda cut: _TRAINING[cut[0] : cut[0] + cut[1]]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(st.characters(codec="utf-8"), max_size=3)), max_size=6)


@given(text=TEXTS.map("".join))
@settings(max_examples=400, deadline=None)
def test_ids_follow_the_definition(tokenizer, text):
    assert list(tokenizer.encode(text)) == by_definition(text)


@pytest.mark.parametrize("text", (*CORPUS, " leading", "  two", "the <s> fox</s>"))
def test_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_text_merges_into_a_control_token(tokenizer):
    ids = tokenizer.encode("<s></s><unk>")
    assert not any(tokenizer.is_special(token_id) for token_id in ids)
    assert tokenizer.encode("<s>", specials=True) == (1,)


def test_beginning_of_sequence_is_added_on_demand(tokenizer):
    assert tokenizer.add_bos
    assert tokenizer.encode("fox", add_bos=True) == (1, *tokenizer.encode("fox"))


@given(ids=st.lists(st.integers(0, len(SOURCE.tokens) - 1), max_size=30))
@settings(max_examples=200, deadline=None)
def test_decodes_as_the_library_where_bytes_are_text(tokenizer, ids):
    ours = tokenizer.decode(ids)
    if "\ufffd" not in ours:
        assert ours == tokenizer._backend.decode(ids, skip_special_tokens=True)
