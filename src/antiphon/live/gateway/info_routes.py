"""Everything that is not generation: models, tokens, health, version, metrics."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from antiphon import __version__

from .body import parse, read_body
from .gateway import State
from .metrics import CONTENT_TYPE
from .openapi import takes
from .service import Service, service_of
from .text_schema import DetokenizeBody, TokenizeBody

router = APIRouter()


@router.get("/", include_in_schema=False)
async def root() -> Response:
    """Whoever opens the address in a browser wants to know what is here."""
    return RedirectResponse("/docs")


@router.head("/v1/models", include_in_schema=False)
@router.get("/v1/models", tags=["models"])
async def models(request: Request) -> dict[str, Any]:
    """The models that can be asked."""
    return {"object": "list", "data": [_card(service_of(request))]}


@router.get("/v1/models/{model:path}", tags=["models"])
async def model(request: Request, model: str) -> dict[str, Any]:
    """One model."""
    service = service_of(request)
    service.check_model(model)
    return _card(service)


@router.post("/tokenize", tags=["tokens"], openapi_extra=takes(TokenizeBody, "TokenizeReply"))
async def tokenize(request: Request) -> Response:
    """Text or messages to token ids, exactly as a completion would see them."""
    service = service_of(request)
    body = parse(TokenizeBody, await read_body(request, service.config.max_body_bytes))
    body.check()
    if body.model is not None:
        service.check_model(body.model)
    if body.messages is not None:
        ids = await service.prompts.chat(
            body.messages,
            answer_next=body.add_generation_prompt,
            variables=body.chat_template_kwargs,
        )
    else:
        [ids] = await service.prompts.texts([body.prompt or ""])
    return _json(
        {
            "count": len(ids),
            "max_model_len": service.max_model_len,
            "tokens": ids,
            "token_strs": await service.prompts.spell(ids) if body.return_token_strs else None,
        }
    )


@router.post("/detokenize", tags=["tokens"], openapi_extra=takes(DetokenizeBody, "DetokenizeReply"))
async def detokenize(request: Request) -> Response:
    """Token ids to text."""
    service = service_of(request)
    body = parse(DetokenizeBody, await read_body(request, service.config.max_body_bytes))
    if body.model is not None:
        service.check_model(body.model)
    service.prompts.check_ids(body.tokens, "tokens")
    return _json({"prompt": await service.prompts.decode(body.tokens)})


@router.head("/health", include_in_schema=False)
@router.get("/health", tags=["operation"])
async def health(request: Request) -> Response:
    """200 while the process can do its work: 503 means that it must be restarted."""
    service: Service | None = request.app.state.service
    sick = service is not None and not service.healthy
    return _json({"status": "unhealthy" if sick else "ok"}, 503 if sick else 200)


@router.head("/ready", include_in_schema=False)
@router.get("/ready", tags=["operation"])
async def ready(request: Request) -> Response:
    """200 if new requests are taken: 503 while loading, draining, or without any worker."""
    service: Service | None = request.app.state.service
    state = "loading" if service is None else service.gateway.state.value
    return _json({"status": state}, 200 if state == State.READY.value else 503)


@router.get("/version", tags=["operation"])
async def version(request: Request) -> dict[str, str]:
    """The version of Antiphon and, once a model is loaded, what its bits depend on."""
    service: Service | None = request.app.state.service
    numerics = {"numerics": service.model.numerics} if service else {}
    return {"version": __version__, **numerics}


@router.get("/metrics", tags=["operation"], response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus metrics. Needs a key if the API does."""
    return Response(service_of(request).metrics.render(), media_type=CONTENT_TYPE)


def _card(service: Service) -> dict[str, Any]:
    return {
        "id": service.served_name,
        "object": "model",
        "created": service.created,
        "owned_by": "antiphon",
        "root": service.model.name,
        "parent": None,
        "max_model_len": service.max_model_len,
    }


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
