"""A profile as a file: safetensors, whose metadata say whose it is. No code runs when it is read.

`metadata["antiphon"]` is JSON: format, version, the numbers of `KvProfile`, its id, and a digest of
the tensors and of these words, since encoding depends on more than the id is of. Only a whole file
is ever seen under its name.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from antiphon.errors import UsageError
from antiphon.host import write_whole

from .level import MOST_LEVELS
from .profile import KvProfile, ProfileLevel, Transform, find_flaw

_FORMAT = "antiphon-kv-profile"
_VERSION = 2
_PERSON = b"antiphon.kvprof2"
_MOST_BYTES = 4 << 30
_COUNTS = ("layers", "heads", "width", "section_layers", "kept_tokens")
_LARGEST_COUNT = 1 << 16
_ERRORS = (SafetensorError, ValueError, KeyError, TypeError, RecursionError)
_MAKE_ONE = "`antiphon kv profile MODEL -o FILE` makes one"
_NO_PROFILE = "{}: is no profile of a model's KV ({}): " + _MAKE_ONE


def write_kv_profile(profile: KvProfile, path: Path) -> None:
    """Write `path`, and its folder where there is none. Raises `UsageError` if that can't be."""
    write_whole(path, encode_kv_profile(profile), makes_folder=True)


def encode_kv_profile(profile: KvProfile) -> bytes:
    """The content of a profile's file."""
    arrays, words = _arrays(profile), _words(profile)
    words |= {"digest": _digest(arrays, words)}
    return save(arrays, {"antiphon": json.dumps(words)})


def _arrays(profile: KvProfile) -> dict[str, npt.NDArray]:
    """The file's tensors."""
    arrays: dict[str, npt.NDArray] = {"frequencies": profile.frequencies}
    for number, one in enumerate(profile.transforms):
        for name in ("forward", "inverse", "mean", "spread", "following"):
            arrays[f"transform.{number}.{name}"] = getattr(one, name)
    for number, level in enumerate(profile.levels, 1):
        arrays[f"level.{number}.frequencies"] = level.frequencies
        arrays[f"level.{number}.shift"] = level.shift
        for name in ("classes", "low_bits"):
            for place, mine in enumerate(getattr(level, name)):
                arrays[f"level.{number}.{name}.{place}"] = mine
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _words(profile: KvProfile) -> dict[str, Any]:
    """What the metadata say, but for the digest."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "id": profile.id.hex(),
        "identity": profile.identity.hex(),
        "model": profile.model,
        **{name: getattr(profile, name) for name in _COUNTS},
        "rounding": profile.rounding,
        "levels": [
            {
                "step": level.step,
                "bits_per_element": level.bits_per_element,
                "divergence": level.divergence,
            }
            for level in profile.levels
        ],
    }


def _digest(arrays: dict[str, npt.NDArray], words: dict[str, Any]) -> str:
    """Of the words as JSON with sorted keys, then of each tensor by name: name, bytes."""
    digest = blake2b(json.dumps(words, sort_keys=True).encode(), digest_size=16, person=_PERSON)
    for name in sorted(arrays):
        digest.update(name.encode() + b"\0")
        digest.update(arrays[name].data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ProfileName:
    """What a profile's file says of itself: of which model it is, and its id."""

    id: bytes
    identity: bytes
    model: str


def peek_kv_profile(path: Path) -> ProfileName:
    """What the file says of itself, without reading the rest: whoever decodes by it reads it whole.
    Raises `UsageError` that names the file and what is wrong with it."""
    try:
        _check_file(path)
        with safe_open(path, "numpy") as file:
            said = _said(file)
            return ProfileName(
                bytes.fromhex(said["id"]), bytes.fromhex(said["identity"]), str(said["model"])
            )
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
    except _ERRORS as error:
        raise UsageError(_NO_PROFILE.format(path, error)) from None


def read_kv_profile(path: Path) -> KvProfile:
    """The profile in `path`. Raises `UsageError` that names the file and what is wrong with it."""
    try:
        _check_file(path)
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: is larger than any profile")
        with safe_open(path, "numpy") as file:
            profile, said = _parsed(file)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
    except _ERRORS as error:
        raise UsageError(_NO_PROFILE.format(path, error)) from None
    flaw = find_flaw(profile)
    if flaw is None and said != (profile.id.hex(), _digest(_arrays(profile), _words(profile))):
        flaw = "its content is not what its id and digest say: it was damaged or changed"
    if flaw is not None:
        raise UsageError(f"{path}: {flaw}: {_MAKE_ONE} anew")
    return profile


def _check_file(path: Path) -> None:
    """Raises `UsageError` unless there is one."""
    if path.is_dir():
        raise UsageError(
            f"{path}: is a folder: name the file that `antiphon kv profile` wrote, such as "
            f"{path / 'model.kvprofile'}"
        )
    if not path.exists():
        raise UsageError(f"{path}: there is no such file: {_MAKE_ONE}")


def _said(file: Any) -> dict[str, Any]:
    """Its words, if they are of a version that this reader knows."""
    words = (file.metadata() or {}).get("antiphon")
    if words is None:
        raise ValueError("its tensors are something else's")
    said = json.loads(words)
    if said["format"] != _FORMAT or said["version"] != _VERSION:
        raise ValueError(
            f"its format is {said['format']!r:.40}, version {said['version']!r:.20}; here it is "
            f"{_FORMAT!r}, {_VERSION}"
        )
    return said


def _parsed(file: Any) -> tuple[KvProfile, tuple[str, str]]:
    """The profile, and what it says its id and digest are."""
    said = _said(file)
    counts = {name: said[name] for name in _COUNTS}
    for name, count in counts.items():
        least = 0 if name == "kept_tokens" else 1
        if type(count) is not int or not least <= count < _LARGEST_COUNT:
            raise ValueError(f"{name} is {count!r}")
    if not isinstance(said["levels"], list) or not 1 <= len(said["levels"]) <= MOST_LEVELS:
        raise ValueError(f"levels: not 1 … {MOST_LEVELS} of them")

    def array(name: str, dtype: Any = np.float32) -> npt.NDArray:
        found = file.get_tensor(name)
        if found.dtype != dtype:
            raise ValueError(f"{name} is {found.dtype}")
        return found

    count = 2 * -(-counts["layers"] // counts["section_layers"])
    names = ("forward", "inverse", "mean", "spread", "following")
    transforms = tuple(
        Transform(**{name: array(f"transform.{number}.{name}") for name in names})
        for number in range(count)
    )
    levels = tuple(
        ProfileLevel(
            step=float(one["step"]),
            frequencies=array(f"level.{number}.frequencies", np.uint16),
            shift=array(f"level.{number}.shift"),
            classes=tuple(array(f"level.{number}.classes.{n}", np.uint8) for n in range(count)),
            low_bits=tuple(array(f"level.{number}.low_bits.{n}", np.uint8) for n in range(count)),
            bits_per_element=float(one["bits_per_element"]),
            divergence=None if one["divergence"] is None else float(one["divergence"]),
        )
        for number, one in enumerate(said["levels"], 1)
    )
    profile = KvProfile(
        identity=bytes.fromhex(said["identity"]),
        model=str(said["model"]),
        frequencies=array("frequencies"),
        rounding=float(said["rounding"]),
        transforms=transforms,
        levels=levels,
        **counts,
    )
    return profile, (said["id"], said["digest"])
