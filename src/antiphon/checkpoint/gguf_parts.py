"""A model in one GGUF file, or split over several: `NAME-00001-of-00003.gguf` and so on.

llama.cpp's `gguf-split` and the converters of `gguf` write such parts. All metadata is in the
first; every part says which it is (`split.no`, from 0), of how many (`split.count`), and how many
tensors all have together (`split.tensors.count`). Any part stands for the model.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from antiphon.errors import ModelFileError

from .facts import Facts
from .gguf_file import GgufFile, GgufTensor, read_gguf

_PART_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GgufParts:
    """A model's GGUF files, in order. `file` is all of them read as one, `name` the model's."""

    name: str
    paths: tuple[Path, ...]
    file: GgufFile


def read_parts(path: Path) -> GgufParts:
    """Read the headers of the model of which `path` is the only file, or any part.

    Raises `ModelFileError` that names the part which is missing, damaged or not of this model.
    """
    given = read_gguf(path)
    count = Facts(path, given.metadata).integer("split.count", 1)
    if count <= 1:
        return GgufParts(name=path.stem, paths=(path,), file=given)
    name, paths = _all_paths(path, count)
    files = [given if part == path else read_gguf(part) for part in paths]
    for number, file in enumerate(files):
        _check_place(file, number, count)
    tensors = dict(_joined(files))
    first = Facts(paths[0], files[0].metadata)
    if first.integer("split.tensors.count", len(tensors)) != len(tensors):
        wanted = f"{len(tensors)}, the tensors in all {count} parts"
        raise first.wrong("split.tensors.count", wanted)
    file = GgufFile(path=paths[0], metadata=files[0].metadata, tensors=tensors)
    return GgufParts(name=name, paths=paths, file=file)


def _all_paths(path: Path, count: int) -> tuple[str, tuple[Path, ...]]:
    """The model's name and where its parts are: beside `path`, all of them."""
    named = _PART_NAME.fullmatch(path.name)
    if named is None or int(named[3]) != count:
        problem = f"is one of {count} parts, but isn't named NAME-00001-of-{count:05}.gguf"
        raise ModelFileError(path, f"{problem}: give it back the name that it was written with")
    names = [f"{named[1]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    for name in names:
        if not (path.parent / name).is_file():
            problem = f"this part of the model is missing; {count} parts belong into one folder"
            raise ModelFileError(path.parent / name, problem)
    return named[1], tuple(path.parent / name for name in names)


def _check_place(file: GgufFile, number: int, count: int) -> None:
    facts = Facts(file.path, file.metadata)
    for key, wanted in (("split.no", number), ("split.count", count)):
        if facts.integer(key) != wanted:
            raise facts.wrong(key, f"{wanted}, as the file's name says")


def _joined(files: list[GgufFile]) -> Iterator[tuple[str, GgufTensor]]:
    seen: dict[str, Path] = {}
    for file in files:
        for name, tensor in file.tensors.items():
            if name in seen:
                problem = f"is in {seen[name].name} too"
                raise ModelFileError(file.path, problem, tensor=name)
            seen[name] = file.path
            yield name, tensor
