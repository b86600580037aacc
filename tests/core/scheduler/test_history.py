"""Predicted output lengths and the time until a full queue has room."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.scheduler.history import UNKNOWN_TOKENS, History


@given(
    st.lists(st.integers(0, 50), max_size=30),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.5, 0.9]),
    st.integers(0, 60),
    st.integers(1, 100),
)
def test_prediction_is_a_quantile_of_the_recent_longer_lengths(
    lengths: list[int], size: int, quantile: float, generated: int, cap: int
) -> None:
    history = History(size=size, quantile=quantile)
    for length in lengths:
        history.finished(length)
    predicted = history.predict(generated, cap)
    longer = sorted(length for length in lengths[-size:] if length > generated)
    unknown = max(2 * generated, UNKNOWN_TOKENS)
    expected = longer[int(quantile * len(longer))] if longer else unknown
    assert predicted == max(generated + 1, min(expected, cap))


def test_retry_after_follows_the_rate_of_endings_between_1_and_60_s() -> None:
    history = History(size=1, quantile=0.5)
    assert history.retry_after_s(5.0) == 1.0
    for end in range(10):
        history.request_ended(end * 4.0)
    assert 3.0 < history.retry_after_s(40.0) < 5.0
    assert history.retry_after_s(10_000.0) == 60.0
    fast = History(size=1, quantile=0.5)
    for end in range(10):
        fast.request_ended(end * 0.01)
    assert fast.retry_after_s(0.1) == 1.0
