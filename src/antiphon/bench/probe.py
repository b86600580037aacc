"""What has to be known of a server before it is put under load, and whether it answers at all."""

import os
import ssl
from dataclasses import dataclass, replace

import aiohttp
import msgspec

from antiphon.errors import PeerError
from antiphon.types import CallError, Seconds
from antiphon.workload import Ask, number_text

from .answer import Answer
from .client import Client
from .server import LoadLimits, Server

_PAGE_BYTES = 2**22
_TRIAL_TOKENS = 4
_LISTED = 8
"""Models that an error names."""
_TRIAL = Ask(
    number=0, text="Say hello.", max_tokens=_TRIAL_TOKENS, temperature=0.0, seed=0, ignore_eos=True
)
DROPPED = {
    "ignore_eos": "The server refuses `ignore_eos`: answers may end before their planned length.",
    "seed": "The server refuses `seed`: sampled answers differ from run to run.",
    "stream_options": "The server refuses `stream_options`: tokens are counted by the client.",
    "min_tokens": "The server refuses `min_tokens`: answers may be shorter than planned.",
    "temperature": "The server refuses `temperature`: it samples as it likes.",
    "max_tokens": "The server refuses `max_tokens`: `max_completion_tokens` is sent instead.",
}
"""Fields that a call can go without, and what that means, in the order in which they are missed."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class Probed:
    """The server as it is to be used, and what a reader of results should know about it."""

    server: Server
    notes: tuple[str, ...] = ()


async def probe(server: Server, *, ask: Ask = _TRIAL, timeout_s: Seconds = 60.0) -> Probed:
    """Find the API's root, the model (unless one is named) and the fields that the server refuses.

    Sends one short call such as `ask`; more only if that is refused. Raises `PeerError`, which says
    what to do about it, if the server can't be reached, has no such API or answers wrongly.
    """
    server = await _with_root(server, timeout_s)
    trial = replace(ask, max_tokens=_TRIAL_TOKENS, min_tokens=min(ask.min_tokens, _TRIAL_TOKENS))
    return await _with_fields(server, trial, timeout_s)


# The API's root and the model


async def _with_root(server: Server, timeout_s: Seconds) -> Server:
    """The API is below /v1, or where the URL says. Servers without a list of models exist."""
    roots = dict.fromkeys((server.root, server.url.rstrip("/")))
    page = ""
    for root in roots:
        status, page = await _get(server, f"{root}/models", timeout_s)
        if status == 200:
            return replace(server, root=root, model=server.model or _only_model(root, page))
        if status not in (404, 405):
            raise PeerError(_refusal(f"{root}/models", status, page))
    if server.model:
        return server
    raise PeerError(
        f"{server.root}/models answers 404: no OpenAI API there, or one that lists no models. "
        "Check the URL's path; for a server without a list, name the model (--model)"
    )


async def _get(server: Server, url: str, timeout_s: Seconds) -> tuple[int, str]:
    headers = {**server.headers(), "Accept": "application/json"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session,
            session.get(
                url, headers=headers, ssl=server.tls() or True, allow_redirects=False
            ) as response,
        ):
            page = await response.content.read(_PAGE_BYTES)
            location = response.headers.get("location", "")
            return response.status, location or page.decode(errors="replace")
    except TimeoutError:
        raise PeerError(f"{url} does not answer within {number_text(timeout_s)} s") from None
    except aiohttp.ClientConnectorCertificateError as error:
        raise PeerError(
            f"{url}: its certificate can't be trusted ({_untrusted(error)}): "
            "set SSL_CERT_FILE to the authority's, or do without verification (--insecure)"
        ) from None
    except aiohttp.ClientConnectionError as error:
        raise PeerError(
            f"{server.url} can't be reached ({_unreached(error)}): "
            "is the server running, the port right?"
        ) from None
    except (aiohttp.ClientError, ValueError) as error:
        raise PeerError(f"{url} does not answer with HTTP: {error}") from None


def _untrusted(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)


def _unreached(error: aiohttp.ClientConnectionError) -> str:
    """Why, without the objects that aiohttp names."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error)
    cause = error.os_error
    code = cause.errno or 0
    return os.strerror(code) if code > 0 else cause.strerror or str(cause)


def _refusal(url: str, status: int, page: str) -> str:
    match status:
        case 401 | 403:
            return f"{url} answers {status}: it wants an API key, or another one (--api-key)"
        case _ if 300 <= status < 400:
            return f"{url} redirects to {page}: give that server's URL"
        case _:
            return f"{url} answers {status}: {page[:200].strip() or 'nothing more'}"


def _only_model(root: str, page: str) -> str:
    try:
        models = [model.id for model in msgspec.json.decode(page, type=_Models).data]
    except (msgspec.DecodeError, RecursionError):
        raise PeerError(
            f"{root}/models answers with something else than a list of models: "
            f"{page[:200].strip()!r}: is this an OpenAI API?"
        ) from None
    match models:
        case [only]:
            return only
        case []:
            raise PeerError(f"{root} serves no model yet: load one, or name it (--model)")
        case _:
            some = ", ".join(models[:_LISTED]) + (", …" if len(models) > _LISTED else "")
            raise PeerError(f"{root} serves {len(models)} models: choose one (--model): {some}")


# The fields of a call


async def _with_fields(server: Server, trial: Ask, timeout_s: Seconds) -> Probed:
    """Leave out what is refused, and nothing else."""
    answer = await _tried(server, trial, timeout_s)
    if answer.failure is CallError.REFUSED and answer.status in (400, 422):
        return await _without_refused(server, trial, timeout_s, answer)
    if answer.failure is not None:
        raise PeerError(_bad_trial(server, answer))
    return Probed(server)


async def _without_refused(server: Server, trial: Ask, timeout_s: Seconds, first: Answer) -> Probed:
    """Without all of them, then with each in turn again: it stays out if the server refuses it."""
    without = frozenset(DROPPED)
    answer = await _tried(replace(server, without=without), trial, timeout_s)
    if answer.failure is not None:
        raise PeerError(_bad_trial(server, first))
    for name in DROPPED:
        fewer = replace(server, without=without - {name})
        if (await _tried(fewer, trial, timeout_s)).failure is None:
            without = fewer.without
    notes = tuple(note for name, note in DROPPED.items() if name in without)
    return Probed(replace(server, without=without), notes)


async def _tried(server: Server, trial: Ask, timeout_s: Seconds) -> Answer:
    async with Client(server, LoadLimits(timeout_s=timeout_s)) as client:
        return await client.send(trial)


def _bad_trial(server: Server, answer: Answer) -> str:
    match answer.status:
        case 401 | 403:
            remedy = "give an API key that may use the model (--api-key)"
        case _ if answer.failure is CallError.TIMEOUT:
            remedy = "give it longer (--timeout, the trial up to 60 s), or wait until it is warm"
        case 404:
            remedy = f"check the URL's path and the model, {server.model!r} (--model)"
        case _:
            remedy = "put no load on it before one call works"
    return f"{server.root}: a trial call failed ({answer.failure}): {answer.error}: {remedy}"
