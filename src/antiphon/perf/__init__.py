"""How long steps, phases and transfers take: measured shapes, a fitted model, a file for it."""

from .accuracy import Accuracy, accuracy, quantile
from .default_profile import DEFAULT_FETCH_TIME, DEFAULT_LINK_TIME, DEFAULT_STEP_TIME
from .fetch_time import TierFetchTime
from .fit import Measured, fit_step_time
from .phase_time import FittedPhaseTime
from .profile_file import (
    Point,
    Profile,
    ProfiledEngine,
    encode_profile,
    read_profile,
    write_profile,
)
from .profiled_device import ProfiledDevice, profiled_device
from .router_times import read_times, write_times
from .step_grid import Limits, StepKind, StepShape, axes, grid, held_out
from .step_time import FittedStepTime, Ramp
from .step_work import StepWork, work_of
from .transfer_time import LinkTime, OverlappedTransfer

__all__ = [
    "DEFAULT_FETCH_TIME",
    "DEFAULT_LINK_TIME",
    "DEFAULT_STEP_TIME",
    "Accuracy",
    "FittedPhaseTime",
    "FittedStepTime",
    "Limits",
    "LinkTime",
    "Measured",
    "OverlappedTransfer",
    "Point",
    "Profile",
    "ProfiledDevice",
    "ProfiledEngine",
    "Ramp",
    "StepKind",
    "StepShape",
    "StepWork",
    "TierFetchTime",
    "accuracy",
    "axes",
    "encode_profile",
    "fit_step_time",
    "grid",
    "held_out",
    "profiled_device",
    "quantile",
    "read_profile",
    "read_times",
    "work_of",
    "write_profile",
    "write_times",
]
