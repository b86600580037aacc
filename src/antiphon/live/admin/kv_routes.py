"""The admin routes about KV: `/admin/kv/…`."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from antiphon.errors import ClientError, PeerError
from antiphon.types import StoreOp

from .answers import json_answer, read_order
from .kv_desk import KvDesk
from .kv_orders import KvOrder

MAX_TIMEOUT_S = 86_400.0
_CHANGES = tuple(op for op in StoreOp if op not in (StoreOp.STATS, StoreOp.LOOKUP))
_STATS_TIMEOUT_S = 10.0


def kv_routes(desk: Callable[[], KvDesk | None], max_body_bytes: int) -> list[Route]:
    """The routes. `desk` is None while the model is loading."""

    def there() -> KvDesk:
        found = desk()
        if found is None:
            raise PeerError("the model is still loading")
        return found

    async def stats(request: Request) -> Response:
        return json_answer(await there().stats(_STATS_TIMEOUT_S))

    async def lookup(request: Request) -> Response:
        order = await read_order(request, KvOrder, max_body_bytes)
        _check(order)
        return json_answer(await there().lookup(order))

    def change(op: StoreOp) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            order = await read_order(request, KvOrder, max_body_bytes)
            _check(order)
            return json_answer(await there().change(op, order))

        return do

    return [
        Route("/admin/kv/stats", stats),
        Route("/admin/kv/lookup", lookup, methods=["POST"]),
        *(Route(f"/admin/kv/{op}", change(op), methods=["POST"]) for op in _CHANGES),
    ]


def _check(order: KvOrder) -> None:
    if not 0 < order.timeout_s <= MAX_TIMEOUT_S:
        raise ClientError(
            f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}", field="timeout_s"
        )
