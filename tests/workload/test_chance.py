from statistics import fmean, pvariance

import pytest

from antiphon.core.draws import Draws
from antiphon.workload.chance import exponential, gamma, standard_normal

COUNT = 20_000


@pytest.mark.parametrize("shape", [0.05, 0.25, 1.0, 4.0, 100.0])
def test_gamma_has_its_mean_and_variance(shape: float) -> None:
    drawn = [gamma(shape, Draws(1), "test", number) for number in range(COUNT)]
    assert fmean(drawn) == pytest.approx(shape, rel=0.05)
    assert pvariance(drawn) == pytest.approx(shape, rel=0.1)


def test_normal_and_exponential_have_their_moments() -> None:
    drawn = [standard_normal(Draws(1), number) for number in range(COUNT)]
    assert fmean(drawn) == pytest.approx(0, abs=0.03)
    assert pvariance(drawn) == pytest.approx(1, rel=0.05)
    waits = [exponential(3.0, Draws(1), number) for number in range(COUNT)]
    assert fmean(waits) == pytest.approx(3, rel=0.03)
    assert pvariance(waits) == pytest.approx(9, rel=0.08)
