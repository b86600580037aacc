"""Who follows a worker's blocks from outside, in vLLM's format: see `adapters.vllm_kv_events`."""

from antiphon.adapters.vllm_kv_events import VllmKvEvents
from antiphon.core.tcp_endpoint import parse_endpoint
from antiphon.core.worker_spec import worker_specs
from antiphon.errors import BugError
from antiphon.types import Config, WorkerId


def publish_to_followers(config: Config, worker: WorkerId) -> VllmKvEvents | None:
    """The publisher of this worker, on ports of its own; None: nobody is to follow.

    It hears what the worker's page pool says, and is to be closed. Raises `UsageError`.
    """
    if config.kv.events is None:
        return None
    ids = [spec.id for spec in worker_specs(config.cluster, ())]
    number = ids.index(worker)
    replay = config.kv.events_replay
    return VllmKvEvents(
        _of_worker(config.kv.events, number),
        None if replay is None else _of_worker(replay, number),
        rank=number,
        shape=config.kv.events_format,
    )


def _of_worker(text: str, number: int) -> str:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise BugError(f"{text} was not checked with the configuration")
    return str(endpoint.of_worker(number))
