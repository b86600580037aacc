"""Who is at the other end can be asked at any moment."""

import asyncio
import os
import socket

from antiphon.wire import FROM_STORE, FrameStream


async def test_a_closed_stream_names_nobody() -> None:
    ours, theirs = socket.socketpair()
    stream = FrameStream(FROM_STORE, clock=lambda: 0.0)
    await asyncio.get_running_loop().create_unix_connection(lambda: stream, sock=ours)
    assert stream.peer_pid == os.getpid()
    stream.end("it is over")
    await stream.wait_closed()
    assert stream.peer_pid is None
    theirs.close()
