"""The arithmetic of `antiphon kv cost`: published cases first, then what must hold for all."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.kv_cost import (
    Storage,
    Traffic,
    bytes_for,
    first_guess_tokens_per_s,
    grouped,
    kv_bytes_per_day,
    latent,
    storage_case,
    useful_bytes_per_s,
)

DEEPSEEK_R1 = latent("deepseek-r1", layers=61, rank=512, rope_dim=64, source="")
LLAMA_70B = grouped("llama-3-70b", layers=80, kv_heads=8, head_dim=128, source="")
FP16 = 2
TB = 1e12
BOX_70B = Traffic(devices=8, tokens_per_s=2500, busy_share=1.0, device_price_per_hour=2.0)
SSD = Storage(name="SSD", capacity_bytes=TB, price_per_gb_month=0.05)
RAM = Storage(name="RAM", capacity_bytes=TB, price_per_gb_month=2.0)


def test_models_keep_what_their_attention_needs() -> None:
    assert DEEPSEEK_R1.bytes_per_token(FP16) == 70_272
    assert LLAMA_70B.bytes_per_token(FP16) == 320 * 1024


def test_a_first_guess_is_of_the_models_size() -> None:
    assert first_guess_tokens_per_s(8e9) == first_guess_tokens_per_s(30e9) == 30_000
    assert first_guess_tokens_per_s(70e9) == first_guess_tokens_per_s(671e9) == 2_500


def test_one_mi300x_with_deepseek_r1_in_fp16_makes_about_15_tb_a_day() -> None:
    one = replace(BOX_70B, devices=1)
    a_day = kv_bytes_per_day(one, DEEPSEEK_R1.bytes_per_token(FP16))
    assert a_day == pytest.approx(15.2 * TB, rel=0.01)


def test_a_terabyte_of_ssd_pays_beside_eight_devices_at_less_than_half_a_percent() -> None:
    per_token = LLAMA_70B.bytes_per_token(FP16)
    case = storage_case(BOX_70B, SSD, stored_bytes_per_token=per_token, hit_rate=0.0)
    assert BOX_70B.tokens_per_hour == 72e6
    assert BOX_70B.price_per_token * 1e6 == pytest.approx(0.222, rel=0.01)
    assert case.price_per_hour == pytest.approx(0.0685, rel=0.01)
    assert case.break_even_hit_rate == pytest.approx(0.0043, rel=0.01)
    larger = replace(SSD, capacity_bytes=2.3 * TB)
    case = storage_case(BOX_70B, larger, stored_bytes_per_token=per_token, hit_rate=0.0)
    assert case.break_even_hit_rate == pytest.approx(0.01, rel=0.02)


def test_as_much_memory_pays_at_seventeen_percent_only() -> None:
    case = storage_case(BOX_70B, RAM, stored_bytes_per_token=327_680, hit_rate=0.0)
    assert case.price_per_hour == pytest.approx(2.74, rel=0.01)
    assert case.break_even_hit_rate == pytest.approx(0.17, rel=0.01)


def test_with_a_codec_of_four_ssd_pays_at_a_quarter_of_the_rate() -> None:
    """As many tokens are kept in a quarter of the bytes."""

    def rate(per_token: float) -> float:
        storage = replace(SSD, capacity_bytes=bytes_for(BOX_70B, per_token, keep_s=152.6))
        case = storage_case(BOX_70B, storage, stored_bytes_per_token=per_token, hit_rate=0.0)
        return case.break_even_hit_rate

    assert rate(327_680) == pytest.approx(0.0043, rel=0.01)
    assert rate(327_680 / 4) == pytest.approx(0.0011, rel=0.03)


def test_latent_attention_keeps_no_heads() -> None:
    tall = latent("a", layers=10, rank=512, rope_dim=64, source="")
    wide = grouped("b", layers=10, kv_heads=128, head_dim=128, source="")
    assert tall.bytes_per_token(1) == 5_760
    assert wide.bytes_per_token(1) == 327_680


positive = st.floats(1e-3, 1e6, allow_nan=False)
traffics = st.builds(
    Traffic,
    devices=st.integers(1, 1000),
    tokens_per_s=positive,
    busy_share=st.floats(0.01, 1.0),
    device_price_per_hour=positive,
)
storages = st.builds(
    Storage, name=st.just("x"), capacity_bytes=st.floats(1e6, 1e18), price_per_gb_month=positive
)


@settings(deadline=None, max_examples=100)
@given(traffics, storages, positive)
def test_at_the_break_even_rate_nothing_is_saved_and_nothing_lost(
    traffic: Traffic, storage: Storage, per_token: float
) -> None:
    rate = storage_case(
        traffic, storage, stored_bytes_per_token=per_token, hit_rate=0.0
    ).break_even_hit_rate
    case = storage_case(traffic, storage, stored_bytes_per_token=per_token, hit_rate=rate)
    assert case.saved_per_hour == pytest.approx(0, abs=1e-9 * max(1.0, storage.price_per_hour))
    more = storage_case(traffic, storage, stored_bytes_per_token=per_token, hit_rate=2 * rate)
    assert more.saved_per_hour > 0


@settings(deadline=None, max_examples=100)
@given(traffics, storages, positive)
def test_what_is_stored_until_the_first_block_goes_is_the_capacity(
    traffic: Traffic, storage: Storage, per_token: float
) -> None:
    case = storage_case(traffic, storage, stored_bytes_per_token=per_token, hit_rate=0.1)
    written = kv_bytes_per_day(traffic, per_token) * case.holds_s / 86_400
    assert written == pytest.approx(storage.capacity_bytes)


@settings(deadline=None, max_examples=100)
@given(traffics, storages, positive)
def test_a_codec_makes_blocks_stay_longer_and_slower_links_useful(
    traffic: Traffic, storage: Storage, per_token: float
) -> None:
    raw = storage_case(traffic, storage, stored_bytes_per_token=per_token, hit_rate=0.1)
    packed = storage_case(traffic, storage, stored_bytes_per_token=per_token / 4, hit_rate=0.1)
    assert packed.holds_s == pytest.approx(4 * raw.holds_s)
    assert packed.break_even_hit_rate == raw.break_even_hit_rate
    assert useful_bytes_per_s(traffic, per_token / 4) * 4 == pytest.approx(
        useful_bytes_per_s(traffic, per_token)
    )
