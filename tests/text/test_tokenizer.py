"""Laws of `Tokenizer` on the real vocabulary."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from antiphon.checkpoint.tokenizer_source import TokenizerFiles
from antiphon.errors import ClientError, ModelFileError
from antiphon.testing.text_corpus import CORPUS
from antiphon.text import Tokenizer

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>")


LACKING = {*b"\x04\x06\x13\x14\x16\x1d", 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
"""Bytes for which the SmolLM2 vocabulary has no token."""


def files(path, **changes) -> TokenizerFiles:
    facts = {
        "tokenizer_json": path,
        "config": {},
        "chat_template": None,
        "eos_token_ids": (2,),
        "bos_token_id": 1,
        "add_bos": False,
    }
    return TokenizerFiles(**{**facts, **changes})


texts = st.lists(
    st.one_of(st.text(st.characters(codec="utf-8"), max_size=8), st.sampled_from(SPECIALS)),
    max_size=8,
).map("".join)


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_user_text_never_becomes_a_special_token(smollm, text):
    assert not any(smollm.is_special(token_id) for token_id in smollm.encode(text))


@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_text_comes_back(smollm, text):
    """But for the 21 bytes that the vocabulary lacks, which are left out (as by the original)."""
    kept = b"".join(bytes([b]) for b in text.encode() if b not in LACKING)
    assert smollm.decode(smollm.encode(text)) == kept.decode("utf-8", "replace")


@given(text=st.text(st.characters(codec="utf-8"), max_size=60) | texts)
@settings(max_examples=200, deadline=None)
def test_no_text_has_fewer_tokens_than_its_size_says(smollm, text):
    size_bytes = sum(b not in LACKING for b in text.encode())
    assert smollm.fewest_tokens(size_bytes) <= len(smollm.encode(text))


def test_the_longest_token_sets_the_least_number_of_tokens(smollm):
    longest = max(range(smollm.vocab_size), key=lambda id: len(smollm.token_bytes(id)))
    size_bytes = len(smollm.token_bytes(longest))
    assert (smollm.fewest_tokens(size_bytes), smollm.fewest_tokens(size_bytes + 1)) == (1, 2)
    assert smollm.encode(smollm.token_text(longest)) == (longest,)


@given(ids=st.lists(st.integers(0, 49151), max_size=30), skip=st.booleans())
@settings(max_examples=300, deadline=None)
def test_decodes_as_the_library_does(smollm, ids, skip):
    expected = smollm._backend.decode(ids, skip_special_tokens=skip)
    assert smollm.decode(ids, skip_specials=skip) == expected


def test_the_template_s_own_specials_are_recognised(smollm):
    assert smollm.encode("<|im_start|>user\nhi<|im_end|>", specials=True) == (
        1,
        *smollm.encode("user\nhi"),
        2,
    )


def test_facts(smollm):
    assert smollm.vocab_size == 49152
    assert smollm.eos_token_ids == (2,)
    assert (smollm.bos_token_id, smollm.bos_token, smollm.eos_token) == (
        *(1, "<|im_start|>", "<|im_end|>"),
    )
    assert smollm.is_special(2)
    assert not smollm.is_special(100)
    assert smollm.special.ids["<|im_end|>"] == 2


def test_tokens_one_by_one(smollm):
    ids = smollm.encode(" naïve 😀")
    assert b"".join(smollm.token_bytes(i) for i in ids) == " naïve 😀".encode()
    assert "\ufffd" in smollm.token_text(ids[-1])
    assert (smollm.token_text(2), smollm.token_bytes(2)) == ("<|im_end|>", b"<|im_end|>")


@pytest.mark.parametrize("unknown", [49152, 10**6, 2**40, -1])
def test_ids_outside_the_vocabulary_add_nothing(smollm, unknown):
    assert smollm.token_bytes(unknown) == b""
    assert smollm.decode([100, unknown]) == smollm.decode([100])
    assert unknown not in smollm.pieces


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d \ude00"])
def test_a_lone_surrogate_is_the_client_s_error(smollm, text):
    with pytest.raises(ClientError, match="surrogate"):
        smollm.encode(text)


def test_threads_do_not_mix_up_modes(smollm_source):
    smollm = Tokenizer.load(smollm_source)
    text = "<|im_end|>"
    with ThreadPoolExecutor(4) as pool:
        alone = [pool.submit(smollm.token_text, i) for i in range(100, 2000)]
        plain = [pool.submit(smollm.encode, text) for _ in range(300)]
        special = [pool.submit(smollm.encode, text, specials=True) for _ in range(300)]
        assert {future.result() for future in special} == {(2,)}
        assert not any(2 in future.result() for future in plain)
        assert all(future.result() for future in alone)


def small_tokenizer(tmp_path, **flags) -> Tokenizer:
    """Letters, blanks and two special tokens; the second is spelled outside the byte alphabet."""
    vocab = {token: i for i, token in enumerate(("<|end|>", "<｜x▁y｜>", *"abcĠĊ<|end>"))}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [
            AddedToken("<|end|>", special=True, normalized=False, **flags),
            AddedToken("<｜x▁y｜>", special=True, normalized=False),
        ]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer.load(files(tmp_path / "tokenizer.json", eos_token_ids=(0,)))


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}])
@given(parts=st.lists(st.sampled_from(("a", "b ", " ", "\n", "<|end|>", "<｜x▁y｜>", "<|"))))
@settings(max_examples=60, deadline=None)
def test_splitting_at_special_tokens_is_what_the_library_does(tmp_path_factory, flags, parts):
    tokenizer = small_tokenizer(tmp_path_factory.mktemp("small"), **flags)
    text = "".join(parts)
    ids = []
    for part in tokenizer.special.split(text):
        ids += tokenizer.encode(part) if isinstance(part, str) else [part]
    assert tuple(ids) == tokenizer.encode(text, specials=True)


def test_tokens_that_are_literal_text(tmp_path):
    tokenizer = small_tokenizer(tmp_path)
    assert tokenizer.token_text(1) == "<｜x▁y｜>"
    assert tokenizer.decode([1, 2], skip_specials=False) == tokenizer._backend.decode(
        [1, 2], skip_special_tokens=False
    )


def test_loads_a_hugging_face_file(smollm, tmp_path):
    backend = tokenizers.Tokenizer.from_str(smollm._backend.to_str())
    backend.enable_truncation(2)
    backend.enable_padding()
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    loaded = Tokenizer.load(files(path, config={"eos_token": {"content": "<|endoftext|>"}}))
    assert loaded.eos_token == "<|endoftext|>"
    for text in CORPUS:
        assert loaded.encode(text) == smollm.encode(text)
        assert loaded.decode(loaded.encode(text)) == smollm.decode(smollm.encode(text))


def test_a_whole_word_look_up_does_not_reach_a_special_token(tmp_path):
    """Llama-3-style vocabularies take a known word whole: even one spelled like a special."""
    vocab = {letter: i for i, letter in enumerate("PAD ")} | {"PAD": 4}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("PAD", special=True, normalized=False)])
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(files(tmp_path / "tokenizer.json"))
    assert loaded.encode("PAD", specials=True) == (4,)
    assert loaded.encode("PAD") == (0, 1, 2)
    assert loaded.encode("PAD PAD " * 3000).count(4) == 0


def test_a_reserved_character_is_the_client_s_error(tmp_path):
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("a", special=True, normalized=False)])
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ClientError, match="'a' is reserved"):
        Tokenizer.load(files(tmp_path / "tokenizer.json")).encode("ab")


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: can't be read"):
        Tokenizer.load(files(path))
    path.write_text("{}")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.load(files(path))
    tokenizers.Tokenizer(models.BPE()).save(str(path))
    with pytest.raises(ModelFileError, match="decoder none is not supported"):
        Tokenizer.load(files(path))
