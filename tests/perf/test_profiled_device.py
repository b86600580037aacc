"""One object has the times of steps and of phases: a pool of a fleet needs no second."""

from pathlib import Path

import pytest
from plans import chunk, decodes, plan
from test_profile_file import PROFILE

from antiphon.core.costs import PhaseTime
from antiphon.errors import UsageError
from antiphon.perf import (
    DEFAULT_STEP_TIME,
    FittedPhaseTime,
    ProfiledDevice,
    profiled_device,
    write_profile,
)


def test_a_file_is_a_device(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(PROFILE, path)
    device = profiled_device(path, step_tokens=256)
    assert device == ProfiledDevice(step_time=PROFILE.step_time, step_tokens=256)


def test_it_has_the_times_of_its_parts() -> None:
    device = ProfiledDevice(step_time=DEFAULT_STEP_TIME, step_tokens=256)
    phases: PhaseTime = FittedPhaseTime(step_time=DEFAULT_STEP_TIME, step_tokens=256)
    step = decodes([10, 500])
    assert device.seconds(step) == DEFAULT_STEP_TIME.seconds(step)
    assert device.repeated_s(step, 7) == DEFAULT_STEP_TIME.repeated_s(step, 7)
    assert device.lag_s(step) == 0.0
    assert device.prefill_s(1000, 24) == phases.prefill_s(1000, 24)
    assert device.occupied_s(1000, 24) == device.prefill_s(1000, 24)
    assert device.decode_step_s(2, 510) == device.seconds(step)
    steps = [plan(chunk(at, 256, sampled=at == 256)) for at in (0, 256)]
    assert device.prefill_s(512) == pytest.approx(sum(map(device.seconds, steps)))


def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.json: can't be read"):
        profiled_device(tmp_path / "nothing.json", step_tokens=256)
