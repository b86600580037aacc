"""May this worker join? The gateway's rules, as a function of what is there."""

import re
from collections.abc import Mapping

from antiphon.types import (
    HostName,
    JoinRefusal,
    JoinRefused,
    KvShape,
    ModelInfo,
    WorkerId,
    WorkerInfo,
)

from .host_names import is_store, is_worker_on, wrong_in_host_port

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDENTITY_BYTES = 32
_MAX_COUNT = 2**48
_MAX_VOCABULARY = 2**31
MAX_NUMERICS_CHARS = 1024


def judge_join(
    info: WorkerInfo,
    present: Mapping[WorkerId, WorkerInfo],
    *,
    identity: bytes,
    max_workers: int,
    max_model_len: int | None = None,
) -> JoinRefused | None:
    """None: it may. `present` are the workers whose streams live; `identity` the model's;
    `max_model_len` what callers have been promised, once a worker has joined.

    The cluster's shape of KV is that of the first worker present (by id) that exchanges any.
    Unequal numerics are no reason: they are compared at each exchange. Nor does a new life push
    out an old one of the same id: that one's stream is over when its process has ended, or after
    its silence; two processes that were given one name would else end each other for ever.
    """
    if problem := _problem(info):
        return JoinRefused(reason=JoinRefusal.INVALID, message=problem)
    if info.model.identity != identity:
        return JoinRefused(
            reason=JoinRefusal.MODEL,
            message=f"this cluster serves the model {identity.hex()[:16]}…, the worker has "
            f"{info.model.identity.hex()[:16]}…: start it with the same model file",
        )
    if max_model_len is not None and info.max_model_len < max_model_len:
        return JoinRefused(
            reason=JoinRefusal.MAX_MODEL_LEN,
            message=f"this cluster serves requests of up to {max_model_len} tokens, the worker at "
            f"most {info.max_model_len}: start it with as large a model.max_model_len and "
            f"kv.memory_bytes as the others",
        )
    if info.id in present:
        return JoinRefused(
            reason=JoinRefusal.LIVE,
            message=f"a worker {info.id} is here, and its connection lives{_twin(info)}",
            transient=True,
        )
    if len(present) >= max_workers:
        return JoinRefused(
            reason=JoinRefusal.FULL,
            message=f"{len(present)} workers are here, at most {max_workers} may be",
            transient=True,
        )
    return _unlike(info.kv, present)


def _twin(info: WorkerInfo) -> str:
    if info.at is None:
        return ""
    return f": if another `antiphon worker` of {info.at.host} runs, stop it"


def judge_host(info: WorkerInfo, host: HostName) -> JoinRefused | None:
    """Whether a worker is what the certificate of its stream says; None: it is. `host` is the
    certificate's. A host can speak for its own workers only, under names that no other host has."""
    if info.at is None or info.at.host != host:
        said = "none" if info.at is None else f"{info.at.host!r:.60}"
        problem = f"the certificate is of host {host}, and the worker says {said}"
    elif not is_worker_on(host, info.id):
        problem = f"a worker on host {host} must be called {host}.ROLE-NUMBER"
    else:
        return None
    return JoinRefused(reason=JoinRefusal.HOST, message=problem)


def is_name(text: str) -> bool:
    """Whether it can be the name of a worker, or of one of its lives."""
    return _NAME.fullmatch(text) is not None


def same_pages(one: KvShape, other: KvShape) -> bool:
    """Whether one may read pages of the other: all but the number of pages is equal."""
    return not _differences(one, other)


def _unlike(kv: KvShape | None, present: Mapping[WorkerId, WorkerInfo]) -> JoinRefused | None:
    if kv is None:
        return None
    for id in sorted(present):
        there = present[id].kv
        if there is None:
            continue
        if different := _differences(kv, there):
            return JoinRefused(
                reason=JoinRefusal.KV_SHAPE,
                message=f"its pages can't be exchanged with those of {id}: "
                + ", ".join(f"{name} is {mine!r}, not {its!r}" for name, mine, its in different),
            )
        return None
    return None


def _differences(one: KvShape, other: KvShape) -> list[tuple[str, object, object]]:
    names = ("layout", "page_tokens", "block_tokens", "page_bytes")
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _problem(info: WorkerInfo) -> str:
    """What of a worker's own description can't be; empty if all can."""
    if not is_name(info.id):
        return "id: letters, digits, dots, dashes and underscores, at most 64"
    if is_store(info.id):
        return f"id: {info.id} is what a store is called"
    if not is_name(info.incarnation):
        return "incarnation: letters, digits, dots, dashes and underscores, at most 64"
    if len(info.model.identity) != _IDENTITY_BYTES:
        return f"model.identity has {len(info.model.identity)} bytes, not {_IDENTITY_BYTES}"
    if len(info.model.numerics) > MAX_NUMERICS_CHARS:
        return f"model.numerics is longer than {MAX_NUMERICS_CHARS} characters"
    if info.model.vocab_size > _MAX_VOCABULARY:
        return f"model.vocab_size is {info.model.vocab_size}, at most {_MAX_VOCABULARY} can be"
    shape = "" if info.kv is None else shape_problem(info.kv)
    at = "" if info.at is None else wrong_in_host_port(info.at)
    return _bad_count(info.model, info.max_model_len) or shape or at or _bad_store(info)


def _bad_store(info: WorkerInfo) -> str:
    """A host speaks of its own store only."""
    if info.store is None:
        return ""
    if info.at is None or info.store.host != info.at.host:
        return f"store.host {info.store.host!r:.80} is another host than the worker's"
    return wrong_in_host_port(info.store, "store")


def _bad_count(model: ModelInfo, max_model_len: int) -> str:
    counts = {
        "model.vocab_size": model.vocab_size,
        "model.context_len": model.context_len,
        "model.kv_bytes_per_token": model.kv_bytes_per_token,
        "max_model_len": max_model_len,
    }
    return _first_out_of_range(counts)


def shape_problem(kv: KvShape) -> str:
    """What of a shape of KV can't be; empty if all can."""
    counts = {
        "kv.page_tokens": kv.page_tokens,
        "kv.block_tokens": kv.block_tokens,
        "kv.page_bytes": kv.page_bytes,
        "kv.pages": kv.pages,
        "kv.entry_pages": kv.entry_pages,
    }
    if problem := _first_out_of_range(counts):
        return problem
    if kv.block_tokens % kv.page_tokens:
        return f"kv.block_tokens {kv.block_tokens} is no multiple of kv.page_tokens"
    return ""


def _first_out_of_range(counts: Mapping[str, int]) -> str:
    for name, count in counts.items():
        if not 1 <= count <= _MAX_COUNT:
            return f"{name} is {count}, which can't be"
    return ""
