"""API keys come from files: a command line can be read by everybody on the machine."""

from pathlib import Path

from antiphon.errors import UsageError


def first_key(file: Path | None, option: str = "--api-key-file") -> str | None:
    """The first word of the file; None without a file. Raises `UsageError` if it holds none."""
    if file is None:
        return None
    try:
        words = file.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {file}: can't be read ({error})") from None
    if not words:
        raise UsageError(f"{option} {file}: holds no key")
    return words[0]
