"""Operations that wait end when the server stops: nobody waits for what does not come any more."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import error_answer

STOPPING = "the server is stopping"


class EndedByStop:
    """The admin routes until `stop`: then what changes something is cancelled and answered with
    503, and what comes later is refused with it. Looking is possible to the end."""

    def __init__(self, routes: ASGIApp) -> None:
        self._routes = routes
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """The server stops from now on."""
        self._stopped.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._routes(scope, receive, send)
            return
        if not self._stopped.is_set() and await self._answered(scope, receive, send):
            return
        await error_answer(503, STOPPING)(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether an answer was begun before the server stopped."""
        begun = False

        async def begin(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        work = asyncio.ensure_future(self._routes(scope, receive, begin))
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not begun:
                work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()
        return begun
