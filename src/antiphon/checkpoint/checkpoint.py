"""A model's files, opened: what the model is, where its tensors are, and who it is."""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from antiphon.errors import ModelFileError

from .gguf_model import entries_from_gguf, spec_from_gguf
from .gguf_parts import read_parts
from .gguf_tokenizer import tokenizer_from_gguf
from .hf_folder import CONVERT, entries_from_folder, spec_from_folder, weight_files
from .hf_tokenizer import tokenizer_from_folder
from .identity import digest_files
from .model_spec import ModelSpec, find_flaw
from .tensor_entry import TensorEntry
from .tokenizer_source import TokenizerSource

_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_IDENTITY_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


class CheckpointFormat(StrEnum):
    """How the model's files are laid out."""

    GGUF = "gguf"
    HUGGING_FACE = "hugging-face"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A model's files. `tensors` are exactly those that `spec` needs, by the engine's names
    (`model_tensors`).

    `name` is the file's or folder's name; a split file's without the number of the part.
    `identity` is BLAKE2b-256 over weights, config (with RoPE) and tokenizer: equal identities mean
    the same model, wherever its files are.
    The files must not be changed in place while the checkpoint is in use.
    """

    path: Path
    name: str
    format: CheckpointFormat
    spec: ModelSpec
    identity: bytes
    tensors: Mapping[str, TensorEntry]
    tokenizer: TokenizerSource


def open_checkpoint(path: Path) -> Checkpoint:
    """Read and check the headers of a .gguf file (any part of a split one) or a folder as
    Hugging Face's.

    Reads every byte once for `identity` (0.1 s for 100 MB) but keeps no tensor in memory. Raises
    `ModelFileError` for whatever makes the files unusable.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise ModelFileError(
            path, f"can't be opened: {getattr(error, 'strerror', None) or error}"
        ) from None
    if stat.S_ISDIR(mode):
        return _open_folder(path)
    if not stat.S_ISREG(mode):
        raise ModelFileError(path, "neither a file nor a folder")
    if path.suffix == ".safetensors":
        raise ModelFileError(path, "give the folder that holds it and its config.json")
    if path.suffix in _PICKLE_SUFFIXES:
        raise ModelFileError(path, CONVERT)
    return _open_gguf(path)


def _open_gguf(path: Path) -> Checkpoint:
    parts = read_parts(path)
    spec = _checked(parts.file.path, spec_from_gguf(parts.file))
    tensors = entries_from_gguf(parts.file, spec)
    return Checkpoint(
        path=path,
        name=parts.name,
        format=CheckpointFormat.GGUF,
        spec=spec,
        tensors=tensors,
        tokenizer=tokenizer_from_gguf(parts.file, spec),
        identity=digest_files(("gguf", part) for part in parts.paths),
    )


def _open_folder(folder: Path) -> Checkpoint:
    if not (folder / "config.json").exists():
        raise ModelFileError(
            folder,
            "no model folder: it needs config.json, tokenizer.json and *.safetensors; of GGUF "
            "models name the file",
        )
    spec = _checked(folder / "config.json", spec_from_folder(folder))
    tensors = entries_from_folder(folder, spec)
    tokenizer = tokenizer_from_folder(folder, spec)
    described = [folder / name for name in _IDENTITY_FILES]
    hashed = [file for file in described if file.exists()] + list(weight_files(folder))
    return Checkpoint(
        path=folder,
        name=folder.resolve().name,
        format=CheckpointFormat.HUGGING_FACE,
        spec=spec,
        tensors=tensors,
        tokenizer=tokenizer,
        identity=digest_files((file.name, file) for file in hashed),
    )


def _checked(path: Path, spec: ModelSpec) -> ModelSpec:
    flaw = find_flaw(spec)
    if flaw is not None:
        raise ModelFileError(path, flaw)
    return spec
