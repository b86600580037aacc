"""Why a connection was not made, in words: many of the system's errors have none."""

_OF_KIND = {
    TimeoutError: "no answer in time",
    ConnectionResetError: "the other side hung up",
    BrokenPipeError: "the other side hung up",
    ConnectionAbortedError: "the other side hung up",
    EOFError: "the other side hung up",
}


def why(error: BaseException) -> str:
    """Never empty."""
    said = getattr(error, "verify_message", "") or str(error)
    if said:
        return said
    known = (words for kind, words in _OF_KIND.items() if isinstance(error, kind))
    return next(known, type(error).__name__)
