"""`/v1/chat/completions` and `/v1/completions`."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from antiphon.core.validation import DEFAULT_MAX_TOKENS, check_prompt_len
from antiphon.errors import ClientError
from antiphon.types import Seconds

from .answer_frame import AnswerFrame
from .auth import ANYONE
from .body import parse, read_body
from .chat import ChatEncoder, chat_answer
from .chat_schema import ChatBody
from .completion_schema import CompletionBody
from .completions import CompletionEncoder, completion_answer
from .errors import too_many_streams
from .event_stream import Encoder, EventStream, watched
from .intake import Call, check_choices, checked, priority, slo, timeout_s
from .openapi import CHAT_ANSWER, TEXT_ANSWER, takes
from .reply import Reply
from .service import Service, service_of

Result = TypeVar("Result")


class DirectRoute(APIRoute):
    """Calls its endpoint with the request and nothing else: half of what FastAPI costs a request
    is to solve the dependencies of endpoints that have none."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `APIRoute`."""
        return self.endpoint


router = APIRouter(tags=["generation"], route_class=DirectRoute)


@router.post("/v1/chat/completions", openapi_extra=takes(ChatBody, CHAT_ANSWER))
async def chat_completions(request: Request) -> Response:
    """Continue a conversation. With `stream: true` the answer comes as server-sent events."""
    service = service_of(request)
    arrived_at = service.clock()
    body = parse(ChatBody, await read_body(request, service.config.max_body_bytes))
    service.check_model(body.model)
    include_usage = body.include_usage()
    max_tokens, limit_field = body.output_limit()
    renamed = {"max_tokens": limit_field, "prompt": "messages", "logprobs": "top_logprobs"}
    sampling = checked(
        body.sampling(max_tokens=max_tokens, logprobs=body.alternatives()),
        vocab_size=service.model.vocab_size,
        renamed=renamed,
    )
    limit_s = timeout_s(body, request.headers, service.config.request_timeout_s)
    rank, targets = priority(body), slo(request.headers)
    reading = service.prompts.chat(
        body.messages,
        variables=body.chat_template_kwargs,
        max_model_len=service.max_model_len,
    )
    call = Call(
        id=f"chatcmpl-{secrets.token_hex(16)}",
        prompts=[await _in_time(service, arrived_at + limit_s, reading)],
        sampling=sampling,
        tenant=request.state.tenant,
        arrived_at=arrived_at,
        timeout_s=limit_s,
        priority=rank,
        slo=targets,
        stream=body.stream,
        renamed=renamed,
    )
    frame = _frame(service, call)
    return await _respond(
        request,
        service,
        call,
        whole=lambda reply: chat_answer(frame, reply, body.n),
        streamed=lambda: ChatEncoder(frame, body.n, include_usage),
    )


@router.post("/v1/completions", openapi_extra=takes(CompletionBody, TEXT_ANSWER))
async def completions(request: Request) -> Response:
    """Continue one or several texts. Choice `i × n + j` is completion `j` of prompt `i`."""
    service = service_of(request)
    arrived_at = service.clock()
    body = parse(CompletionBody, await read_body(request, service.config.max_body_bytes))
    service.check_model(body.model)
    body.check()
    include_usage = body.include_usage()
    texts, id_lists = body.texts(), body.ids()
    check_choices(len(texts) + len(id_lists), body.n)
    sampling = checked(
        body.sampling(max_tokens=body.max_tokens, logprobs=body.logprobs),
        vocab_size=service.model.vocab_size,
        renamed={},
    )
    limit_s = timeout_s(body, request.headers, service.config.request_timeout_s)
    rank, targets = priority(body), slo(request.headers)
    reading = _prompts(service, texts, id_lists)
    call = Call(
        id=f"cmpl-{secrets.token_hex(16)}",
        prompts=await _in_time(service, arrived_at + limit_s, reading),
        sampling=sampling,
        tenant=request.state.tenant,
        arrived_at=arrived_at,
        timeout_s=limit_s,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        priority=rank,
        slo=targets,
        stream=body.stream,
    )
    if not body.echo:
        texts = [""] * len(call.prompts)
    elif id_lists:
        texts = [await service.prompts.decode(ids) for ids in id_lists.values()]
    echoed = [text for text in texts for _ in range(body.n)]
    frame = _frame(service, call)
    return await _respond(
        request,
        service,
        call,
        whole=lambda reply: completion_answer(frame, reply, echoed),
        streamed=lambda: CompletionEncoder(frame, echoed, include_usage),
    )


async def _in_time(
    service: Service, deadline: Seconds, work: Coroutine[Any, Any, Result]
) -> Result:
    """What `work` returns, or `ClientError` 504 if it is not done at `deadline`."""
    left_s = deadline - service.clock()
    try:
        if left_s <= 0:
            work.close()
            raise TimeoutError
        async with asyncio.timeout(left_s):
            return await work
    except TimeoutError:
        raise ClientError(
            "the request's time ran out before its text was read",
            status=504,
            code="deadline_exceeded",
        ) from None


async def _prompts(
    service: Service, texts: list[str], id_lists: dict[str, list[int]]
) -> list[tuple[int, ...]]:
    max_model_len = service.max_model_len
    if texts:
        return await service.prompts.texts(texts, max_model_len=max_model_len)
    for field, ids in id_lists.items():
        check_prompt_len(len(ids), max_model_len=max_model_len, field=field)
        service.prompts.check_ids(ids, field)
    return [tuple(ids) for ids in id_lists.values()]


async def _respond(
    request: Request,
    service: Service,
    call: Call,
    *,
    whole: Callable[[Reply], bytes],
    streamed: Callable[[], Encoder],
) -> Response:
    gateway = service.gateway
    limit = service.config.max_streams_per_key
    if call.tenant != ANYONE and gateway.open_calls(call.tenant) >= limit:
        return too_many_streams(limit).response()
    reply = gateway.open(call)
    if call.stream:
        return EventStream(
            reply,
            streamed(),
            cancel=lambda: gateway.cancel(reply),
            close=lambda: gateway.close(reply),
            keep_alive_s=service.config.keep_alive_s,
            clock=service.clock,
        )
    try:
        with watched(request.receive, lambda: gateway.cancel(reply)):
            await reply.changed()
    finally:
        gateway.close(reply)
    if reply.error is not None:
        return reply.error.response()
    return Response(whole(reply), media_type="application/json")


def _frame(service: Service, call: Call) -> AnswerFrame:
    return AnswerFrame(
        id=call.id,
        created=int(time.time()),
        model=service.served_name,
        fingerprint=service.model.numerics,
        token_bytes=service.prompts.token_bytes,
    )
