"""Sealed records in the remote tier: what is there tells nothing, and what is changed is a miss."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import key_of, pages_of, record_of
from test_remote import Values, dropped, got, put, remote

from antiphon.store.record.record_seal import RecordSeal

SEAL, OTHER = RecordSeal(bytes(range(32))), RecordSeal(bytes(range(1, 33)))
NAME = b"antiphon:sealed-kv:1:" + SEAL.name.hex().encode() + b":"


def test_another_tier_with_the_key_reads_them_and_nobody_else() -> None:
    values = Values()
    assert put(remote(values, seal=SEAL), 0, 1) == (True, True)
    assert set(values.kept) == {NAME + key_of(0), NAME + key_of(1)}
    everything = b"".join(values.kept.values())
    assert not any(bytes(page)[:16] in everything for n in (0, 1) for page in pages_of(n))
    same_key = remote(values, seal=RecordSeal(bytes(range(32))))
    assert got(same_key, 0, 1, 2) == [0, 1]
    assert same_key.verify([key_of(0), key_of(1)]).wrong == ()
    assert same_key.some(1) is not None
    for other in (remote(values), remote(values, seal=OTHER)):
        assert got(other, 0, 1) == []
        assert other.exist([key_of(0)]) == [False]
        assert other.clear(None) == ((), True)
    assert got(same_key, 0, 1) == [0, 1]
    assert set(same_key.clear(None)[0]) == {key_of(0), key_of(1)}
    assert values.kept == {}


def test_plain_values_and_those_of_other_keys_are_not_believed_under_its_names() -> None:
    values, other = Values(), Values()
    put(remote(other, seal=OTHER), 0)
    for value in (record_of(0), *other.kept.values()):
        values.kept[NAME + key_of(0)] = value
        tier = remote(values, seal=SEAL)
        assert got(tier, 0) == []
        assert dropped(tier) == {"read_damaged": 1}


@pytest.fixture(scope="module")
def value() -> bytes:
    values = Values()
    put(remote(values, seal=SEAL), 0)
    return values.kept[NAME + key_of(0)]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_values_that_were_changed_are_misses(value: bytes, data: st.DataObject) -> None:
    changed = bytearray(value)
    match data.draw(st.sampled_from(["flip", "cut", "grow"])):
        case "flip":
            changed[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
        case "cut":
            del changed[data.draw(st.integers(0, len(value) - 1)) :]
        case _:
            changed += data.draw(st.binary(min_size=1, max_size=100))
    values = Values()
    values.kept[NAME + key_of(0)] = bytes(changed)
    tier = remote(values, seal=SEAL)
    assert got(tier, 0) == []
    assert dropped(tier).get("read_damaged", 0) + tier.stats().missed_blocks_total == 1
