"""The ASGI application: routes, the layer around them, and what each failure looks like."""

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from antiphon import __version__
from antiphon.errors import BugError, ClientError, PeerError

from . import generation_routes, info_routes
from .auth import Keyring
from .boundary import DOCS_ASSETS, Boundary
from .errors import CLIENT_GONE, HttpError, from_client_error, unavailable
from .openapi import describe
from .service import Service


def create_app(service: Service | None, keys: Keyring) -> FastAPI:
    """The application. With `service=None` it says 503 until `app.state.service` is set."""
    # /docs must work without a network, and must not run a script that a third party serves.
    app = FastAPIOffline(
        title="Antiphon",
        version=__version__,
        redoc_url=None,
        static_url=DOCS_ASSETS,
        description="OpenAI-compatible API of one served model.",
    )
    app.state.service = service
    app.include_router(generation_routes.router)
    app.include_router(info_routes.router)
    app.add_exception_handler(ClientError, _client_error)
    app.add_exception_handler(PeerError, _peer_error)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(HTTPException, _http_exception)

    def count(route: str, status: int) -> None:
        current: Service | None = app.state.service
        if current is not None:
            current.metrics.http(route, status)

    def on_bug(bug: BugError) -> None:
        current: Service | None = app.state.service
        if current is not None:
            current.gateway.fail(bug)

    app.add_middleware(Boundary, keys=keys, count=count, on_bug=on_bug)
    describe(app)
    return app


async def _client_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    return from_client_error(error).response()


async def _peer_error(request: Request, error: Exception) -> Response:
    return unavailable(str(error)).response()


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)


async def _http_exception(request: Request, error: Exception) -> Response:
    """What the router itself refuses: no such path, or not by this method."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            text = f"No such path: {request.url.path[:128]}"
            refusal = HttpError(404, text, None, "not_found")
        case 405:
            text = f"{request.method[:16]} is not allowed here"
            refusal = HttpError(405, text, None, "method_not_allowed")
        case status:
            refusal = HttpError(status, str(error.detail))
    response = refusal.response()
    response.headers.update(error.headers or {})
    return response
