import math
from statistics import fmean, pstdev, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.draws import Draws
from antiphon.errors import UsageError
from antiphon.workload import (
    Lengths,
    ListedLength,
    LognormalLength,
    NormalLength,
    UniformLength,
    fixed_length,
    lognormal_by_p99,
    parse_lengths,
)

tokens = st.integers(1, 2**20)


@st.composite
def lengths(draw: st.DrawFn) -> Lengths:
    low, high = sorted((draw(tokens), draw(tokens)))
    mean, sd = draw(tokens), draw(st.integers(0, 2**20))
    return draw(
        st.sampled_from(
            [
                UniformLength(low, high),
                ListedLength((low, high)),
                NormalLength(mean, sd, low, high),
                LognormalLength(mean, sd, low, high),
            ]
        )
    )


def sample(of: Lengths, count: int = 20_000, seed: int = 1) -> list[int]:
    draws = Draws(seed)
    return [of.draw(draws, "test", number) for number in range(count)]


@settings(deadline=None)
@given(lengths(), st.integers(0, 2**40))
def test_draws_are_within_bounds_and_the_same_each_time(of: Lengths, seed: int) -> None:
    drawn = sample(of, 20, seed)
    assert drawn == sample(of, 20, seed)
    assert all(of.low <= one <= of.high for one in drawn)


@settings(deadline=None)
@given(lengths())
def test_a_text_form_is_read_back(of: Lengths) -> None:
    assert parse_lengths(of.text) == of


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("512", UniformLength(512, 512)),
        ("100-900", UniformLength(100, 900)),
        (" 64 / 128/128", ListedLength((64, 128, 128))),
        ("normal:mean=512,sd=100", NormalLength(512, 100)),
        ("normal:mean=512,sd=100,min=8,max=1e3", NormalLength(512, 100, 8, 1000)),
        ("lognormal:mean=512,sd=100.5", LognormalLength(512, 100.5)),
        ("lognormal:p99=4000,mean=512", lognormal_by_p99(512, 4000)),
    ],
)
def test_a_text_means(text: str, meant: Lengths) -> None:
    assert parse_lengths(text) == meant


@pytest.mark.parametrize(
    ("of", "mean", "sd"),
    [
        (fixed_length(512), 512, 0),
        (UniformLength(100, 900), 500, 231),
        (ListedLength((100, 100, 400)), 200, 141),
        (NormalLength(500, 50), 500, 50),
        (LognormalLength(756, 800), 756, 800),
        (LognormalLength(171, 80), 171, 80),
    ],
)
def test_mean_and_deviation_are_what_was_asked_for(of: Lengths, mean: float, sd: float) -> None:
    drawn = sample(of)
    assert fmean(drawn) == pytest.approx(mean, rel=0.03)
    assert pstdev(drawn) == pytest.approx(sd, rel=0.08)


@pytest.mark.parametrize(("mean", "p99"), [(512, 4000), (100, 100), (50, 700)])
def test_a_lognormal_has_the_percentile_that_was_asked_for(mean: float, p99: float) -> None:
    drawn = sample(lognormal_by_p99(mean, p99), 40_000)
    assert fmean(drawn) == pytest.approx(mean, rel=0.05)
    assert quantiles(drawn, n=100)[98] == pytest.approx(p99, rel=0.08)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", '"" must be a length such as 512, 100-900'),
        ("many", '"many" must be a length such as'),
        ("0", "a length must be from 1 to 1048576 tokens, not 0"),
        ("-5", '"-5" must be a length such as'),
        ("1.5", '"1.5" must be a length such as'),
        ("²", '"²" must be a length such as'),
        ("9" * 15, "a length must be from 1 to 1048576 tokens"),
        ("9" * 5000, "must be a length such as"),
        ("1" * 20_000, "must have at most 16384 characters"),
        ("900-100", "900 to 100 is an empty range: the smaller number comes first"),
        ("1-2-3", '"1-2-3" must be a length such as'),
        ("1/2/x", '"1/2/x" must be a length such as'),
        ("/".join("1" * 1001), "a list must have from 1 to 1000 of them, not 1001"),
        ("normal:mean=5", "normal needs mean and sd"),
        ("normal:mean=5,p99=9", "normal needs mean and sd"),
        ("lognormal:", '"" is no parameter of lognormal'),
        ("lognormal:mean=5", "lognormal needs mean and either sd or p99"),
        ("lognormal:mean=5,sd=1,p99=7", "lognormal needs mean and either sd or p99"),
        ("lognormal:mean=5,mean=6", '"mean=6" is no parameter of lognormal'),
        ("lognormal:mean=nan,sd=1", 'mean must be a number, not "nan"'),
        ("lognormal:mean=-1,sd=1", "mean must be from 1 to 1048576 tokens, not -1"),
        ("lognormal:mean=5,sd=inf", 'sd must be a number, not "inf"'),
        ("lognormal:mean=5,sd=-1", "sd must be from 0 to 1048576 tokens, not -1"),
        ("lognormal:mean=5,sd=x", 'sd must be a number, not "x"'),
        ("lognormal:mean=100,p99=50", "p99 must be from the mean to 15.0 times the mean, not 50"),
        ("lognormal:mean=100,p99=nan", 'p99 must be a number, not "nan"'),
        ("lognormal:mean=100,p99=5000", "p99 must be from the mean to 15.0 times"),
        ("normal:mean=5,sd=1,min=1.5", "min must be a whole number of tokens, not 1.5"),
        ("normal:mean=5,sd=1,max=nan", 'max must be a number, not "nan"'),
        ("normal:mean=5,sd=1,min=9,max=8", "9 to 8 is an empty range"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_lengths(text, "chat: input")
    assert str(raised.value).startswith("chat: input: ")
    assert problem in str(raised.value)


def test_a_list_has_something() -> None:
    with pytest.raises(UsageError, match="from 1 to 1000 of them, not 0"):
        ListedLength(())
    with pytest.raises(UsageError, match="mean must be from 1"):
        LognormalLength(math.nan, 1)
