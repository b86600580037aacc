"""How long a step takes: measured shapes, a fitted model, and the file that keeps it."""

from .accuracy import Accuracy, accuracy, quantile
from .fit import Measured, fit_step_time
from .profile_file import (
    Point,
    Profile,
    ProfiledEngine,
    encode_profile,
    read_profile,
    write_profile,
)
from .step_grid import Limits, StepKind, StepShape, axes, grid, held_out
from .step_time import FittedStepTime, Ramp
from .step_work import StepWork, work_of

__all__ = [
    "Accuracy",
    "FittedStepTime",
    "Limits",
    "Measured",
    "Point",
    "Profile",
    "ProfiledEngine",
    "Ramp",
    "StepKind",
    "StepShape",
    "StepWork",
    "accuracy",
    "axes",
    "encode_profile",
    "fit_step_time",
    "grid",
    "held_out",
    "quantile",
    "read_profile",
    "work_of",
    "write_profile",
]
