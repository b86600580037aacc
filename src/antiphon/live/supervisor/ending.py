"""When a parent of processes ends, and with which exit code."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable

from .stop_signals import handled_signals


class Ending:
    """A signal has `stop` end everything in order, a second one ends it at once, an error too.

    `is_up`: whether all is there that people wait for; if so, `farewell` tells them what happens
    now. Ctrl-C before that is a command that was broken off.
    """

    def __init__(
        self,
        *,
        is_up: Callable[[], bool],
        farewell: Callable[[], None],
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self._is_up = is_up
        self._farewell = farewell
        self._stop = stop
        self._signals = 0
        self._stopping: asyncio.Task[None] | None = None
        self._exit_code: asyncio.Future[int] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether a signal came."""
        return self._signals > 0

    async def reached(self, keeping: Callable[[], Iterable[asyncio.Task[int]]]) -> int:
        """The exit code; whatever still keeps children has been cancelled then.

        Raises what `failed` was told.
        """
        self._exit_code = asyncio.get_running_loop().create_future()
        with handled_signals(self._signalled):
            try:
                return await self._exit_code
            finally:
                if self._stopping is not None:
                    self._stopping.cancel()
                tasks = tuple(keeping())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def failed(self, error: BaseException) -> None:
        """It ends by `error`, unless it has ended."""
        if self._exit_code is not None and not self._exit_code.done():
            self._exit_code.set_exception(error)

    def _finish(self, code: int) -> None:
        if self._exit_code is not None and not self._exit_code.done():
            self._exit_code.set_result(code)

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            self._finish(128 + number)
            return
        up = self._is_up()
        if up:
            self._farewell()
        interrupted = number == signal.SIGINT and not up
        self._stopping = asyncio.create_task(self._stopped(128 + number if interrupted else 0))

    async def _stopped(self, code: int) -> None:
        await self._stop()
        self._finish(code)
