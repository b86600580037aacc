"""What a foreign system has to be able to do so that it can be a remote tier (see `remote`)."""

from collections.abc import Sequence
from typing import Protocol


class RemoteValues(Protocol):
    """What an adapter implements: a map from short names to opaque values that may vanish.

    Calls block, and one runs at a time. Whatever they raise means that the system could not be
    asked. They give up by themselves when it is silent for too long.
    """

    def exists(self, names: Sequence[bytes]) -> Sequence[bool]:
        """For each name: is there a value?"""
        ...

    def get(self, names: Sequence[bytes], most_bytes: int) -> Sequence[bytes | None]:
        """For each name its value, of which only the first `most_bytes` matter; None: no value."""
        ...

    def put(self, values: Sequence[tuple[bytes, bytes]]) -> Sequence[bool]:
        """For each (name, value): was it taken?"""
        ...

    def remove(self, names: Sequence[bytes]) -> None:
        """No value has these names any more."""
        ...

    def names(self, beginning: bytes, place: int) -> tuple[int, Sequence[bytes]]:
        """From `place` on (0: the start), some of the names that begin so, and the next place (0:
        the end). A name that is there all the time is said at least once."""
        ...

    def reset(self) -> None:
        """From another thread: drop all connections, which ends a running call. Raises nothing."""
        ...
