"""A profile as a file: JSON that a person can read, and that a program reads strictly.

    {"profile": "antiphon-step-time", "version": 1, "engine": {…}, "measured_at": …,
     "step_time": {…}, "fitted": {…}, "held_out": {…}, "points": [{…}, …]}

Only a whole profile is ever seen under its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from antiphon.errors import UsageError
from antiphon.host import write_whole

from .accuracy import Accuracy
from .step_grid import StepShape
from .step_time import FittedStepTime, check_amount

_FORMAT = "antiphon-step-time"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledEngine:
    """What was measured: a profile predicts no other model, numerics, core count or machine."""

    model: str
    identity: str
    """The model identity, hexadecimal."""
    numerics: str
    dtype: str
    cores: int
    page_tokens: int
    max_model_len: int
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A step that was measured: the median of `repeats`, and how far they lie apart.

    `spread`: (third − first quartile) / median. Raises `ValueError` for a number that is negative
    or not finite.
    """

    shape: StepShape
    held_out: bool
    seconds: float
    predicted_s: float
    spread: float
    repeats: int

    def __post_init__(self) -> None:
        for name in ("seconds", "predicted_s", "spread", "repeats"):
            check_amount(name, getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How long steps take on one engine, and what that is known from.

    `measured_at`: ISO 8601. `load`: runnable processes on the machine per core when measuring
    began (1: as much as it can do). `left_out`: steps that took too long for the budget. `fitted`
    and `held_out`: errors on the points of the fit, and on those that it has not seen.
    """

    engine: ProfiledEngine
    measured_at: str
    load: float
    left_out: int
    step_time: FittedStepTime
    fitted: Accuracy
    held_out: Accuracy
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        check_amount("load", self.load)
        check_amount("left_out", self.left_out)


def write_profile(profile: Profile, path: Path) -> None:
    """Write `path`, and its folder where there is none. Raises `UsageError` if that can't be."""
    write_whole(path, encode_profile(profile), makes_folder=True)


def encode_profile(profile: Profile) -> bytes:
    """The content of a profile's file."""
    tree = {"profile": _FORMAT, "version": _VERSION} | msgspec.to_builtins(profile)
    return msgspec.json.format(msgspec.json.encode(tree), indent=1) + b"\n"


def read_profile(path: Path) -> Profile:
    """The profile in `path`.

    Raises `UsageError` that names the file and the key: no such file, no JSON, another version, an
    unknown or missing key, a wrong type, a number that is negative or not finite.
    """
    try:
        tree = msgspec.json.decode(path.read_bytes())
        if not isinstance(tree, dict) or tree.pop("profile", None) != _FORMAT:
            raise UsageError(f"{path}: is not a profile that `antiphon profile` wrote")
        version = tree.pop("version", None)
        if version != _VERSION or isinstance(version, bool):
            raise UsageError(f"{path}: version: is {version!r}, but this program reads {_VERSION}")
        _refuse_unknown(tree, Profile, "$")
        return msgspec.convert(tree, Profile)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
    except (msgspec.MsgspecError, _UnknownKey, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None


class _UnknownKey(Exception):
    """Says where it is."""


def _refuse_unknown(tree: Any, kind: Any, where: str) -> None:
    """msgspec leaves out what a dataclass does not have; a profile must not be misunderstood."""
    if isinstance(tree, list):
        item = next(iter(get_args(kind)), None)
        for number, value in enumerate(tree):
            _refuse_unknown(value, item, f"{where}[{number}]")
    if not (isinstance(tree, Mapping) and isinstance(kind, type) and is_dataclass(kind)):
        return
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    for name, value in tree.items():
        if name not in known:
            raise _UnknownKey(f"unknown key {name!r} - at `{where}`: known are {', '.join(known)}")
        _refuse_unknown(value, hints[name], f"{where}.{name}")
