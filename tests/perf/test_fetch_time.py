"""Times of a fetch, tier by tier, and their place in the head of a decision log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.perf import (
    DEFAULT_FETCH_TIME,
    DEFAULT_LINK_TIME,
    DEFAULT_STEP_TIME,
    LinkTime,
    TierFetchTime,
    read_times,
    write_times,
)
from antiphon.types import Tier

STORE_TIERS = [Tier.HOST, Tier.PEER, Tier.DISK, Tier.REMOTE]


@given(st.integers(1, 2**40))
def test_a_faster_tier_is_faster_and_nothing_takes_no_time(size_bytes: int) -> None:
    times = [DEFAULT_FETCH_TIME.seconds(size_bytes, tier) for tier in STORE_TIERS]
    assert times == sorted(times)
    assert times[0] > 0
    assert all(DEFAULT_FETCH_TIME.seconds(0, tier) == 0 for tier in Tier)
    assert DEFAULT_FETCH_TIME.seconds(size_bytes, Tier.DEVICE) == 0


@pytest.mark.parametrize("tier", STORE_TIERS)
def test_each_tier_has_its_own_set_up_and_rate(tier: Tier) -> None:
    links = {
        name: LinkTime(setup_s=number, bytes_per_s=10.0 * number)
        for number, name in enumerate(("host", "peer", "disk", "remote"), 1)
    }
    link = links[tier.value]
    assert TierFetchTime(**links).seconds(600, tier) == link.seconds(600)


def test_fetch_times_are_written_and_read_and_logs_without_them_mean_the_default() -> None:
    slow = LinkTime(setup_s=1.0, bytes_per_s=1.0)
    other = TierFetchTime(host=slow, peer=slow, disk=slow, remote=slow)
    text = write_times(DEFAULT_STEP_TIME, DEFAULT_LINK_TIME, other)
    assert read_times(text, step_tokens=128).fetches == other
    assert read_times("", step_tokens=128).fetches == DEFAULT_FETCH_TIME
    before = text[: text.index(',"fetch_time"')] + "}"
    assert read_times(before, step_tokens=128).fetches == DEFAULT_FETCH_TIME
    with pytest.raises(UsageError, match="can't be read"):
        read_times(text.replace('"remote"', '"elsewhere"'), step_tokens=128)
