"""What a worker's page pool says, for all who want to know it."""

from antiphon.core.kv import KvListener
from antiphon.types import KvEvent


class KvListeners:
    """A `KvListener` that passes each event on, in the order in which the others came to it.

    The pool has to have its listener before anybody is there to listen.
    """

    def __init__(self) -> None:
        self._listeners: list[KvListener] = []

    def add(self, listener: KvListener) -> None:
        """It hears what is said from now on. It must not raise, nor ask the pool."""
        self._listeners.append(listener)

    def __call__(self, event: KvEvent) -> None:
        """Pass it on."""
        for listen in self._listeners:
            listen(event)
