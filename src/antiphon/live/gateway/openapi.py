"""The description of the API for `/docs`: bodies and answers of the routes that parse themselves.

Handlers take the raw request and validate it once, so FastAPI can't see their models; this adds
them to what it does see.
"""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from .answers import Answer, ChatChoice, ChatChunkChoice, TextChoice
from .chat_schema import ChatBody
from .completion_schema import CompletionBody
from .schema import Body
from .text_schema import DetokenizeBody, DetokenizeReply, TokenizeBody, TokenizeReply

CHAT_ANSWER = "Answer_ChatChoice_"
TEXT_ANSWER = "Answer_TextChoice_"
"""Names that msgspec gives to `Answer[ChatChoice]` and `Answer[TextChoice]`."""

_REF = "#/components/schemas/{}"


def takes(model: type[Body], answer: str) -> dict[str, Any]:
    """`openapi_extra` of a route that reads `model` and answers with the schema named `answer`."""
    return {
        "requestBody": {"required": True, "content": _json(model.__name__)},
        "responses": {"200": {"description": "OK", "content": _json(answer)}},
    }


def describe(app: FastAPI) -> None:
    """Make `app.openapi` include the schemas that `takes` refers to."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(_schemas())
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi


def _schemas() -> dict[str, Any]:
    bodies = (ChatBody, CompletionBody, TokenizeBody, DetokenizeBody)
    replies = (TokenizeReply, DetokenizeReply)
    _, ours = models_json_schema(
        [*((m, "validation") for m in bodies), *((m, "serialization") for m in replies)],
        ref_template=_REF.format("{model}"),
    )
    _, answers = msgspec.json.schema_components(
        (Answer[ChatChoice], Answer[ChatChunkChoice], Answer[TextChoice]),
        ref_template=_REF.format("{name}"),
    )
    return {**answers, **ours["$defs"]}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name)}}}
