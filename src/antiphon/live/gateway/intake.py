"""From a checked body and the headers to a `Call`: what the gateway is asked to generate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from antiphon.core.validation import check_sampling, resolve_sampling
from antiphon.errors import ClientError
from antiphon.types import (
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    Seconds,
    Slo,
    TokenId,
)

from .auth import Tenant
from .schema import MAX_CHOICES, GenerationBody

MAX_PRIORITY = 100
"""Callers may only step back: below the default, 0, nobody is asked who else waits."""
DEFAULT_PRIORITY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP call. Each prompt becomes a request of its own; they share everything else.

    `sampling` has passed `check_sampling` and is not resolved yet: that depends on each prompt's
    length, and so does what an open `max_tokens` becomes (see `default_max_tokens` there).
    Deadline and time to first token count from `arrived_at`. `renamed` maps the core's field names
    to those that the caller used.
    """

    id: str
    prompts: Sequence[tuple[TokenId, ...]]
    sampling: SamplingParams
    tenant: Tenant
    arrived_at: Seconds
    timeout_s: Seconds
    default_max_tokens: int | None = None
    priority: int = DEFAULT_PRIORITY
    slo: Slo | None = None
    stream: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model that all workers of a gateway serve, and the longest prompt with its output."""

    model: ModelInfo
    max_model_len: int


def request_of(call: Call, index: int, served: Served, seed: int) -> Request:
    """The request of the call's prompt number `index`; `seed` is for a caller that gave none.

    Raises `ClientError` if the prompt is empty or too long.
    """
    prompt = call.prompts[index]
    try:
        sampling = resolve_sampling(
            call.sampling,
            prompt_len=len(prompt),
            max_model_len=served.max_model_len,
            default_max_tokens=call.default_max_tokens,
            seed=seed,
        )
    except ClientError as error:
        raise rename(error, call.renamed) from None
    return Request(
        id=RequestId(call.id if len(call.prompts) == 1 else f"{call.id}-{index}"),
        prompt=prompt,
        sampling=sampling,
        eos_token_ids=() if sampling.ignore_eos else served.model.eos_token_ids,
        priority=call.priority,
        deadline=call.arrived_at + call.timeout_s,
        arrived_at=call.arrived_at,
        slo=call.slo,
        tenant_salt=call.tenant.salt,
    )


def checked(
    sampling: SamplingParams, *, vocab_size: int, renamed: Mapping[str, str]
) -> SamplingParams:
    """`sampling` itself if it is valid. An error names the caller's own field by `renamed`."""
    try:
        check_sampling(sampling, vocab_size=vocab_size)
    except ClientError as error:
        raise rename(error, renamed) from None
    return sampling


def rename(error: ClientError, renamed: Mapping[str, str]) -> ClientError:
    """The error with the field that the caller wrote in place of the core's name for it.

    A message about the prompt stays: it speaks of the prompt that the messages became.
    """
    given = renamed.get(error.field or "")
    if given is None or given == error.field:
        return error
    message = error.message
    if error.field != "prompt":
        message = message.replace(str(error.field), given)
    return ClientError(message, field=given, status=error.status, code=error.code)


def priority(body: GenerationBody) -> int:
    """0 is served first, the default; higher ones later. Given twice, both must agree."""
    ours = body.antiphon.priority if body.antiphon else None
    if None not in (ours, body.priority) and ours != body.priority:
        raise ClientError(
            "priority and antiphon.priority differ: give one of them", field="antiphon.priority"
        )
    value = ours if ours is not None else body.priority
    if value is None:
        return DEFAULT_PRIORITY
    if not 0 <= value <= MAX_PRIORITY:
        field = "priority" if ours is None else "antiphon.priority"
        raise ClientError(f"{field} must be from 0 to {MAX_PRIORITY}", field=field)
    return value


def slo(headers: Headers) -> Slo | None:
    """Latency targets from `x-slo-ttft-ms` and `x-slo-tpot-ms`; the one not given is no target."""
    ttft_s = _milliseconds(headers, "x-slo-ttft-ms")
    tpot_s = _milliseconds(headers, "x-slo-tpot-ms")
    if ttft_s is None and tpot_s is None:
        return None
    return Slo(
        ttft_s=math.inf if ttft_s is None else ttft_s,
        tpot_s=math.inf if tpot_s is None else tpot_s,
    )


def timeout_s(body: GenerationBody, headers: Headers, limit_s: Seconds) -> Seconds:
    """How long the call may take: the least of body, header `x-request-timeout-s` and limit."""
    asked = [limit_s]
    if body.timeout is not None:
        asked.append(_positive(body.timeout, "timeout"))
    if (text := headers.get("x-request-timeout-s")) is not None:
        asked.append(_positive(_number(text, "x-request-timeout-s"), "x-request-timeout-s"))
    return min(asked)


def check_choices(prompts: int, n: int) -> None:
    """Raises `ClientError` if one call asks for too many choices at once."""
    if prompts * n > MAX_CHOICES:
        raise ClientError(
            f"{prompts} prompts with n={n} make {prompts * n} choices: at most {MAX_CHOICES}",
            field="n",
        )


def _milliseconds(headers: Headers, name: str) -> Seconds | None:
    text = headers.get(name)
    return None if text is None else _positive(_number(text, name), name) / 1000


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ClientError(f"{name} must be a number", field=name) from None


def _positive(value: float, name: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ClientError(f"{name} must be a positive, finite number", field=name)
    return value
