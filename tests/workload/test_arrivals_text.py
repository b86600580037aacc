import pytest

from antiphon.errors import UsageError
from antiphon.workload import (
    ARRIVALS,
    AnyArrivals,
    Constant,
    GammaBursts,
    OnOff,
    OwnTimes,
    Poisson,
    Sine,
    parse_arrivals,
)


@pytest.mark.parametrize(
    ("text", "rate", "meant"),
    [
        ("poisson", 2, Poisson(2)),
        ("poisson:rate=3", None, Poisson(3)),
        ("constant", 0.5, Constant(0.5)),
        ("bursts:cv=2", 4, GammaBursts(4, 2)),
        ("bursts:on=5s,off=10s", 4, OnOff(4, 5, 10)),
        ("bursts:rate=4,on=500ms,off=1min", None, OnOff(4, 0.5, 60)),
        ("sine:low=1,high=5,period=60s", None, Sine(1, 5, 60)),
        ("sine:low=1,high=5,period=60", 6, Sine(2, 10, 60)),
        ("trace", None, OwnTimes()),
        ("trace:speed=2", None, OwnTimes(speed=2)),
        ("trace", 2, OwnTimes(rate_per_s=2)),
        ("trace:rate=2", None, OwnTimes(rate_per_s=2)),
    ],
)
def test_a_text_means(text: str, rate: float | None, meant: AnyArrivals) -> None:
    assert parse_arrivals(text, rate) == meant


def test_every_example_is_one() -> None:
    for kind in ARRIVALS:
        assert (
            type(parse_arrivals(kind.example, None if kind.name == "trace" else 2.0)) is kind.kind
        )


@pytest.mark.parametrize(
    ("text", "rate", "problem"),
    [
        ("", 1, "arrivals: must be one of poisson, constant, bursts:cv=2, "),
        ("poison", 1, 'arrivals: must be one of poisson, .*, not "poison"'),
        ("x" * 100_000, 1, 'arrivals|"xxx.*: must have at most 4096 characters'),
        ("poisson", None, "arrivals poisson: there is no rate: give --rate, or poisson:rate="),
        ("poisson", 0, "arrivals poisson: rate must be from 0.000001"),
        ("poisson", float("nan"), "arrivals poisson: rate must be from 0.000001"),
        ("poisson:rate=0", None, "arrivals poisson: rate must be from 0.000001 to 1000000, not 0"),
        ("poisson:rate=nan", None, 'rate must be a number from 0.000001 to 1000000, not "nan"'),
        ("poisson:cv=2", 1, 'arrivals poisson: there is no option "cv": its options are rate'),
        ("poisson:2", 1, 'arrivals poisson: "2" must be an option such as key=value'),
        ("bursts", 1, "arrivals bursts: cv is missing: give cv="),
        ("bursts:cv=0", 1, "arrivals bursts: cv must be from 0.05 to 20, not 0"),
        ("bursts:cv=-1", 1, "arrivals bursts: cv must be from 0.05 to 20, not -1"),
        ("bursts:cv=2,cv=3", 1, "arrivals bursts: cv is given twice: keep one"),
        ("bursts:cv=2,on=3s", 1, 'arrivals bursts: there is no option "on"'),
        ("bursts:on=3s", 1, "arrivals bursts: off is missing: give off="),
        ("bursts:on=0s,off=1s", 1, "arrivals bursts: on must be from 0.001 to 86400, not 0"),
        ("bursts:on=soon,off=1s", 1, 'on must be a time such as 30s, 200ms or 2min, not "soon"'),
        ("sine:low=5,high=1,period=9s", None, "sine: low must be at most high [(]1[)], not 5"),
        ("sine:low=0,high=0,period=9s", None, "sine: high must be from 0.000001"),
        ("sine:low=-1,high=2,period=9s", None, "sine: low must be from 0 to"),
        ("sine:low=1,high=2,period=0s", None, "sine: period must be from 0.001"),
        ("sine:low=1,high=2", None, "sine: period is missing: give period="),
        ("trace:speed=0", None, "trace: speed must be from 0.000001"),
        ("trace:speed=2,rate=1", None, "speed and rate exclude each other: give one"),
    ],
)
def test_what_is_wrong_is_named(text: str, rate: float | None, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_arrivals(text, rate)
