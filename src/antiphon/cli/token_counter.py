"""Counts tokens for a client whose server does not say how many there were."""

from collections.abc import Callable
from pathlib import Path

from antiphon.errors import UsageError

_FILE = "tokenizer.json"


def token_counter(source: str) -> Callable[[str], int]:
    """How many tokens a text has, by the tokenizer of `source`.

    That is a `tokenizer.json` of any model, a folder with one, or a model as `antiphon serve` takes
    it. Special tokens are not counted. Raises `UsageError` if there is none, or it can't be read.
    """
    path = Path(source)
    if path.is_dir() and (path / _FILE).exists():
        path = path / _FILE
    return _of_json(path) if path.suffix == ".json" else _of_model(source)


def _of_json(path: Path) -> Callable[[str], int]:
    import tokenizers

    try:
        backend = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except OSError as error:
        raise UsageError(f"--tokenizer {path}: can't be read: {error.strerror}") from None
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(f"--tokenizer {path}: holds no tokenizer: {error}") from error
    backend.no_truncation()
    return lambda text: len(backend.encode(_valid(text), add_special_tokens=False))


def _of_model(source: str) -> Callable[[str], int]:
    from antiphon.checkpoint import open_checkpoint, resolve
    from antiphon.text import Tokenizer

    try:
        tokenizer = Tokenizer.load(open_checkpoint(resolve(source)).tokenizer)
    except UsageError as error:
        raise UsageError(f"--tokenizer: {error}") from None
    return lambda text: len(tokenizer.encode(_valid(text)))


def _valid(text: str) -> str:
    """Without lone surrogates, which a server's JSON may have, and no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()
