"""Why a connection was not made, in words: many of the system's errors have none."""

import os
import socket
import ssl

_OF_KIND = {
    TimeoutError: "no answer in time",
    ConnectionResetError: "the other side hung up",
    BrokenPipeError: "the other side hung up",
    ConnectionAbortedError: "the other side hung up",
    EOFError: "the other side hung up",
}
_OWN_NUMBERS = (ssl.SSLError, socket.gaierror, socket.herror)


def why(error: BaseException) -> str:
    """Never empty. Of an error that has a number, what the system calls it: loops put the number
    and the address into their text, each in its own way."""
    if isinstance(error, OSError) and not isinstance(error, _OWN_NUMBERS) and error.errno:
        return os.strerror(error.errno).lower()
    said = getattr(error, "verify_message", "") or str(error)
    if said:
        return said
    known = (words for kind, words in _OF_KIND.items() if isinstance(error, kind))
    return next(known, type(error).__name__)
