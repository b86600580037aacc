"""Values of every type that crosses the wire, and streams over real sockets."""

import asyncio
import socket
import types as python_types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from antiphon.wire import Ending, Frame, FrameStream

_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(st.characters(codec="utf-8"), max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    None: st.none(),
    type(None): st.none(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type, as far as messages use them."""
    kind = getattr(kind, "__supertype__", kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return st.lists(values(items[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, items))
    if get_origin(kind) in (Union, python_types.UnionType):
        return st.one_of(*map(values, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    assert is_dataclass(kind), kind
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})


class Ear:
    """Takes what a stream brings."""

    def __init__(self, stream: FrameStream) -> None:
        self.stream = stream
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.endings: list[Ending] = []
        self.over = asyncio.Event()
        stream.on_frame, stream.on_end = self.frames.put_nowait, self._ended

    def _ended(self, ending: Ending) -> None:
        self.endings.append(ending)
        self.over.set()

    async def frame(self) -> Frame:
        return await asyncio.wait_for(self.frames.get(), 10)

    async def ending(self) -> Ending:
        await asyncio.wait_for(self.over.wait(), 10)
        return self.endings[0]


async def on_socket(
    connection: socket.socket, receives: dict[int, int], clock: Callable[[], float]
) -> Ear:
    """A stream over one end of a socket pair."""
    connection.setblocking(False)
    stream = FrameStream(receives, clock=clock)
    ear = Ear(stream)
    await asyncio.get_running_loop().create_unix_connection(lambda: stream, sock=connection)
    return ear


async def until(condition: Callable[[], bool]) -> None:
    """Return when it holds; checked after each pass of the loop, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
