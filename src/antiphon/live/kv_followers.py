"""Who follows a worker's blocks from outside, in vLLM's format: see `adapters.vllm_kv_events`."""

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.adapters.vllm_kv_events import VllmKvEvents
from antiphon.core.tcp_endpoint import parse_endpoint
from antiphon.core.worker_spec import worker_specs
from antiphon.errors import BugError
from antiphon.types import Config, WorkerId

from .kv_listeners import KvListeners


@contextmanager
def followed(config: Config, worker: WorkerId, heard: KvListeners) -> Iterator[VllmKvEvents | None]:
    """While it lasts, what `heard` passes on is published on ports of this worker's own.

    None: nobody is to follow. Raises `UsageError` if the ports can't be had.
    """
    if config.kv.events is None:
        yield None
        return
    ids = [spec.id for spec in worker_specs(config.cluster, ())]
    number = ids.index(worker)
    replay = config.kv.events_replay
    events = VllmKvEvents(
        _of_worker(config.kv.events, number),
        None if replay is None else _of_worker(replay, number),
        rank=number,
        shape=config.kv.events_format,
    )
    heard.add(events.heard)
    try:
        yield events
    finally:
        events.close()


def _of_worker(text: str, number: int) -> str:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise BugError(f"{text} was not checked with the configuration")
    return str(endpoint.of_worker(number))
