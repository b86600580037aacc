"""Text that is put together token by token is the text of all tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sentencepiece import SOURCE as SENTENCEPIECE

from antiphon.testing.text_corpus import CORPUS
from antiphon.text import TextStream, Tokenizer

EMOJI = "👩‍👩‍👧‍👦🏳️‍🌈𝔘é"


@pytest.fixture(scope="module", params=["byte-level", "sentencepiece"])
def tokenizer(request, smollm):
    return smollm if request.param == "byte-level" else Tokenizer.load(SENTENCEPIECE)


@st.composite
def id_lists(draw, tokenizer):
    """Random ids, specials, and the pieces of characters that several tokens make up."""
    parts = tokenizer.encode(EMOJI)
    token = st.one_of(
        st.integers(0, tokenizer.vocab_size + 10),
        st.sampled_from((0, 1, 2)),
        st.sampled_from(parts),
    )
    return draw(st.lists(token, max_size=30))


def run(tokenizer, ids, **options):
    """(deltas of all tokens, last delta)"""
    stream = TextStream(tokenizer, **options)
    return [stream.push(token_id) for token_id in ids], stream.finish()


def joined(deltas, last):
    return "".join(delta.text for delta in deltas) + last.text


@given(data=st.data(), skip=st.booleans())
@settings(max_examples=300, deadline=None)
def test_joined_deltas_are_the_decoded_text(tokenizer, data, skip):
    ids = data.draw(id_lists(tokenizer))
    deltas, last = run(tokenizer, ids, skip_specials=skip)
    assert joined(deltas, last) == tokenizer.decode(ids, skip_specials=skip)
    assert last.stopped is None


@given(
    data=st.data(), stop=st.lists(st.text(" eath\n😀é\ufffd", min_size=1, max_size=3), max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_the_text_is_cut_before_the_first_stop_string(tokenizer, data, stop):
    ids = data.draw(id_lists(tokenizer))
    deltas, last = run(tokenizer, ids, stop=stop)
    whole = tokenizer.decode(ids)
    starts = [(whole.find(s), len(s), s) for s in stop if s in whole]
    start, _, first = min(starts, default=(len(whole), 0, None))
    assert joined(deltas, last) == whole[:start]
    assert last.stopped == first


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_never_half_a_character(smollm, data):
    """Of text that is valid, every delta is valid: no U+FFFD for what the next token completes."""
    text = data.draw(st.lists(st.sampled_from((*EMOJI, " ", "a", "😀")), max_size=12).map("".join))
    deltas, last = run(smollm, smollm.encode(text))
    assert not any("\ufffd" in delta.text for delta in (*deltas, last))
    assert last.text == ""


@given(data=st.data(), stop=st.sampled_from([(), ("the",), ("a", "ab")]))
@settings(max_examples=200, deadline=None)
def test_offsets_say_where_each_token_begins(tokenizer, data, stop):
    ids = data.draw(id_lists(tokenizer))
    deltas, last = run(tokenizer, ids, stop=stop)
    assert [d.offset for d in deltas] == sorted(d.offset for d in deltas)
    if last.stopped is None:
        for index, delta in enumerate(deltas):
            before = tokenizer.decode(ids[:index])
            held = before.rstrip("\ufffd")
            assert len(held) <= delta.offset <= len(before)


def test_offsets_by_example(smollm):
    ids = smollm.encode("Hi 😀!")
    deltas, _ = run(smollm, ids)
    emoji_tokens = len(ids) - 2
    assert emoji_tokens >= 2
    assert [d.offset for d in deltas] == [0, *[2 + (i > 0) for i in range(emoji_tokens)], 4]


def test_an_unfinished_character_at_the_end(smollm):
    ids = smollm.encode("ok 😀")
    deltas, last = run(smollm, ids[:-1])
    assert joined(deltas, last) == "ok \ufffd" == smollm.decode(ids[:-1])
    assert last.text == "\ufffd"


def test_special_tokens_are_silent_or_spelled_out(smollm):
    assert joined(*run(smollm, [1, 6004, 2])) == "hi"
    assert joined(*run(smollm, [1, 6004, 2], skip_specials=False)) == "<|im_start|>hi<|im_end|>"


def test_a_stop_string_across_tokens_is_never_shown(smollm):
    ids = smollm.encode("The answer is 42.\n\nUser: more")
    stream = TextStream(smollm, stop=["\n\nUser:"])
    shown = ""
    for token_id in ids:
        delta = stream.push(token_id)
        shown += delta.text
        if delta.stopped:
            break
    assert (shown, delta.stopped) == ("The answer is 42.", "\n\nUser:")
    assert stream.push(ids[0]).text == "" == stream.finish().text
    assert stream.finish().stopped == "\n\nUser:"


def test_sentencepiece_leading_space():
    tokenizer = Tokenizer.load(SENTENCEPIECE)
    ids = tokenizer.encode("the fox")
    assert joined(*run(tokenizer, ids)) == "the fox"
    assert joined(*run(tokenizer, [1, *ids])) == "the fox"
    assert joined(*run(tokenizer, ids, continues=True)) == " the fox"


@pytest.mark.parametrize("text", CORPUS)
def test_real_text(smollm, text):
    ids = smollm.encode(text)
    assert joined(*run(smollm, ids)) == smollm.decode(ids)


@pytest.mark.parametrize("stop", [(), ("\n\nUser:", "###")])
def test_held_text_does_not_grow(smollm, stop):
    """However long the text is, what is kept back is shorter than a stop string, and a character
    whose bytes aren't all there: so a token costs the same late as early."""
    ids = smollm.encode("The quick brown fox, who is 42, said: “hé!” 😀\n" * 200)
    stream = TextStream(smollm, stop=stop)
    longest = max(map(len, stop), default=1)
    whole = smollm.decode(ids)
    come = ""
    for count, token_id in enumerate(ids, start=1):
        come += stream.push(token_id).text
        if count % 97 == 0:
            seen = smollm.decode(ids[:count]).rstrip("\ufffd")
            assert len(seen) - len(come) < longest
    assert come + stream.finish().text == whole
