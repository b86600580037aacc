"""The `sentencepiece` library as the oracle: a vocabulary that it trains, through GGUF's lists."""

import io
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from antiphon.checkpoint.tokenizer_source import GgufTokenizer
from antiphon.testing.text_corpus import CORPUS
from antiphon.text import TextStream, Tokenizer

USER_DEFINED = ("<tool>", "\n\n", "\t\t\t")


class Pair:
    """The library's own tokenizer and ours, of one vocabulary."""

    def __init__(self, *, space_prefix: bool) -> None:
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for text in CORPUS for line in text.split("\n")] * 3),
            model_writer=written,
            model_type="bpe",
            vocab_size=700,
            character_coverage=0.98,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=space_prefix,
            user_defined_symbols=[] if space_prefix else list(USER_DEFINED),
            hard_vocab_limit=False,
            minloglevel=2,
        )
        self.theirs = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
        ids = range(self.theirs.get_piece_size())
        self.ours = Tokenizer.load(
            GgufTokenizer(
                path=Path("trained.gguf"),
                model="llama",
                pre="default",
                tokens=tuple(map(self.theirs.id_to_piece, ids)),
                merges=(),
                scores=tuple(map(self.theirs.get_score, ids)),
                token_types=tuple(map(self._kind, ids)),
                space_prefix=space_prefix,
                chat_template=None,
                eos_token_ids=(2,),
                bos_token_id=1,
                add_bos=True,
            )
        )

    def _kind(self, token_id: int) -> int:
        """As llama.cpp's converter tells them: unknown, control, user-defined, byte, normal."""
        if self.theirs.is_unknown(token_id):
            return 2
        if self.theirs.is_control(token_id):
            return 3
        if self.theirs.id_to_piece(token_id) in USER_DEFINED:
            return 4
        return 6 if self.theirs.is_byte(token_id) else 1


@pytest.fixture(scope="module", params=[True, False], ids=["space before text", "as it stands"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(space_prefix=request.param)


AWKWARD = st.one_of(
    st.characters(codec="utf-8", exclude_characters="\0"),
    st.sampled_from("ab  \n\t▁é1") | st.sampled_from(("<0x41>", "<unk>", *USER_DEFINED)),
    st.sampled_from([text for text in CORPUS if "\0" not in text]),
)
TEXTS = st.lists(AWKWARD, max_size=30).map("".join)


@given(text=TEXTS)
@settings(max_examples=400, deadline=None)
def test_the_same_ids_and_the_text_again(pair: Pair, text: str) -> None:
    found = pair.ours.encode(text)
    assert list(found) == pair.theirs.encode(text)
    assert pair.ours.decode(found) == text.replace("▁", " ")


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_same_text_of_any_ids(pair: Pair, data: st.DataObject) -> None:
    """But for bytes that are no text, which the library replaces one by one, and a space spelled
    as a byte at the start, which `transformers` takes for the one before the text, as we do.
    """
    ids = data.draw(st.lists(st.integers(3, pair.theirs.get_piece_size() - 1), max_size=20))
    assume(ids[:1] != [pair.theirs.piece_to_id("<0x20>")])
    ours = pair.ours.decode(ids)
    if "\ufffd" not in ours:
        assert ours == pair.theirs.decode(ids)


@given(text=TEXTS)
@settings(max_examples=100, deadline=None)
def test_a_stream_is_the_text_too(pair: Pair, text: str) -> None:
    stream = TextStream(pair.ours)
    deltas = [stream.push(token_id) for token_id in pair.ours.encode(text)]
    assert "".join(d.text for d in (*deltas, stream.finish())) == text.replace("▁", " ")
