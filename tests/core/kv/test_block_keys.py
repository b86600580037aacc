"""Laws of block keys: I12 equal keys mean equal content, on any machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.kv import BlockKeys
from antiphon.errors import BugError

IDENTITY = bytes(range(32))

# Frozen: a change here makes every stored block unreadable, so it needs a new domain string.
VECTORS = {
    "first": "3fbf34307ef653e738108bfab5477e99d48f38fa0427d7bc6f853b7e5d38bcf3",
    "second": "4ca410ad6a0350492a196016b36e3b71fbf55fe4ec135634381e019c70d6e094",
    "salted": "3fc7aa85c3ff9759aa95d16678ec7331fe8cc3f0772768a5ec145301ad51a590",
    "lineage": "511bd9a77ccbbe71252a88a22d7a50cffe4d3e8cb2e7afaf633cf7cbf50876cd",
    "extra": "d5b5ac052119da79a76717c17218788d8f79bc91fe965e8801a42cde3d8972cc",
    "large ids": "a07fb3b1140fcd113d120631822db01254c7a4b6fea87a7ec04f8fd51f0d458c",
}


def keys(**changes: object) -> BlockKeys:
    facts: dict[str, object] = {"identity": IDENTITY, "numerics": "cpu-fp32-1", "block_tokens": 4}
    return BlockKeys(**(facts | changes))  # type: ignore[arg-type]


def vectors() -> dict[str, str]:
    first = keys().key(None, (1, 2, 3, 4))
    return {
        "first": first.hex(),
        "second": keys().key(first, (5, 6, 7, 8)).hex(),
        "salted": keys(salt=b"tenant").key(None, (1, 2, 3, 4)).hex(),
        "lineage": keys(lineage=b"int8").key(None, (1, 2, 3, 4)).hex(),
        "extra": keys().key(None, (1, 2, 3, 4), b"image").hex(),
        "large ids": keys().key(None, (0, 2**16, 2**24, 2**32 - 1)).hex(),
    }


def test_i12_keys_are_frozen() -> None:
    assert vectors() == VECTORS


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_i12_keys_do_not_depend_on_the_process(seed: str) -> None:
    root = Path(__file__).parents[3]
    code = "import tests.core.kv.test_block_keys as t; print(t.vectors() == t.VECTORS)"
    environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=f"{root}:{root / 'src'}")
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


FACTS = st.fixed_dictionaries(
    {
        "identity": st.binary(max_size=3),
        "numerics": st.text("ab", max_size=3),
        "lineage": st.binary(max_size=3),
        "salt": st.binary(max_size=3),
        "parent": st.sampled_from([None, bytes(32), b"p" * 32]),
        "tokens": st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple),
        "extra": st.binary(max_size=3),
    }
)


def key_of(facts: dict) -> bytes:
    space = BlockKeys(
        identity=facts["identity"],
        numerics=facts["numerics"],
        lineage=facts["lineage"],
        salt=facts["salt"],
        block_tokens=len(facts["tokens"]),
    )
    return space.key(facts["parent"], facts["tokens"], facts["extra"])


@given(FACTS, FACTS)
def test_i12_keys_are_equal_exactly_if_all_facts_are(one: dict, other: dict) -> None:
    assert (key_of(one) == key_of(other)) == (one == other)


def test_i12_a_byte_that_moves_between_fields_changes_the_key() -> None:
    spaces = [
        keys(identity=b"ab", numerics="c"),
        keys(identity=b"a", numerics="bc"),
        keys(identity=b"abc", numerics=""),
        keys(identity=b"ab", numerics="", lineage=b"c"),
    ]
    assert len({space.key(None, (1, 2, 3, 4)) for space in spaces}) == len(spaces)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 7))
def test_extend_is_the_chain_of_single_keys(tokens: list[int], known: int) -> None:
    space, blocks = keys(), len(tokens) // 4
    chain: list[bytes] = []
    for block in range(blocks):
        part = tokens[block * 4 : block * 4 + 4]
        chain.append(space.key(chain[-1] if chain else None, part))
    extended = chain[:known]
    space.extend(extended, tokens, blocks)
    assert extended == chain


@pytest.mark.parametrize(
    ("parent", "tokens"),
    [
        (None, (1, 2, 3)),
        (None, (1, 2, 3, -1)),
        (None, (1, 2, 3, 2**32)),
        (None, (1, 2, 3, 1.5)),
        (b"short", (1, 2, 3, 4)),
    ],
)
def test_what_is_not_a_block_has_no_key(parent: bytes | None, tokens: tuple) -> None:
    with pytest.raises(BugError):
        keys().key(parent, tokens)


def test_salt_and_block_size_have_limits() -> None:
    keys(salt=bytes(64))
    with pytest.raises(BugError, match="64"):
        keys(salt=bytes(65))
    with pytest.raises(BugError, match="block_tokens"):
        keys(block_tokens=0)


@pytest.mark.parametrize(
    ("known", "tokens"),
    [
        ([], (1, 2, 3)),
        ([], (1, 2, 3, 4, 5, 6, 7, -1)),
        ([b"short"], (1, 2, 3, 4, 5, 6, 7, 8)),
    ],
)
def test_what_is_no_chain_is_not_extended(known: list[bytes], tokens: tuple[int, ...]) -> None:
    extended = [*known]
    with pytest.raises(BugError):
        keys().extend(extended, tokens, 2)
    assert extended == known
