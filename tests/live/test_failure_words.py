"""Why a connection was not made: in words, whichever loop tried."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from antiphon.live.failure import why


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_both_loops_say_the_same_of_a_refused_connection(
    run: Callable[[Coroutine[Any, Any, str]], str],
) -> None:
    async def refused() -> str:
        with socket.socket() as nobody:  # bound, and not listening
            nobody.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError) as raised:
                await asyncio.open_connection(*nobody.getsockname())
            return why(raised.value)

    assert run(refused()) == "connection refused"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(), "the other side hung up"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "connection reset by peer"),
        (FileNotFoundError(errno.ENOENT, "gone", "/a/b"), "no such file or directory"),
        (ValueError("said so"), "said so"),
        (ValueError(), "ValueError"),
    ],
)
def test_each_has_words(error: Exception, words: str) -> None:
    assert why(error) == words


def test_numbers_of_libraries_are_not_taken_for_the_systems() -> None:
    assert "wrong version" in why(ssl.SSLError(1, "[SSL] wrong version"))
    assert "not known" in why(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
