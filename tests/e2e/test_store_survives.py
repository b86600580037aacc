"""KV outlives the workers that computed it, and on disk the store too; what is said stays equal."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from completions import ask
from e2e_process import SHAPES, Metrics, Served, at_rest, joined

BLOCK = 64
PROMPT = [3 + (at * 31 + at // 7) % 90 for at in range(1500)]
WHOLE = len(PROMPT) // BLOCK * BLOCK
BODY: dict[str, Any] = {
    "model": "tiny",
    "prompt": PROMPT,
    "max_tokens": 12,
    "ignore_eos": True,
    "temperature": 0,
    "logprobs": 2,
}


def kill(served: Served, *, store: bool) -> None:
    """All workers die at once, or with them the store; then all are there again, in new lives."""
    before = served.status()
    rows = [*before["workers"], *([before["store"]] if store else [])]
    pids = {row["pid"] for row in rows}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    connections = served.metrics()("antiphon_store_connections_total")
    served.until(
        lambda status: (
            joined(status)
            and not pids & {row["pid"] for row in (*status["workers"], status["store"])}
        )
    )
    if store:
        served.until_metrics(lambda seen: seen("antiphon_store_connections_total") > connections)


def known(served: Served, tier: str) -> None:
    """That tier has the prompt, and the router knows what the store has."""
    served.until_metrics(
        lambda seen: (
            seen("antiphon_store_blocks", tier=tier) >= WHOLE // BLOCK
            and seen("antiphon_kv_index_held") >= seen("antiphon_store_blocks")
        )
    )


def from_store(served: Served) -> float:
    return served.metrics()("vllm:external_prefix_cache_hits_total")


@pytest.mark.parametrize("shape", ["1P1D", "2M"])
def test_what_was_computed_once_is_not_computed_again(
    serve: Callable[..., Served], tmp_path: Path, shape: str
) -> None:
    """LMCache 1788: what was on disk was not found after a restart. LMCache 1139: no key was ever
    equal to that of another process."""
    folder = tmp_path / "store"
    options = SHAPES.get(shape, ("--mixed", "2"))
    served = serve(
        *options, "--store-memory", "64MiB", "--store-disk", "64MiB", "--store-dir", str(folder)
    )
    served.until(joined)
    first = ask(served, **BODY)
    assert from_store(served) == 0
    known(served, "host")
    assert ask(served, **BODY) == first

    kill(served, store=False)
    before = from_store(served)
    assert ask(served, **BODY) == first
    assert from_store(served) - before == WHOLE

    known(served, "disk")
    kill(served, store=True)
    known(served, "disk")
    before = from_store(served)
    assert ask(served, **BODY) == first
    assert from_store(served) - before == WHOLE
    metrics: Metrics = served.until_metrics(at_rest)
    assert metrics("antiphon_failed_fetches_total") == 0
    assert served.stop() == 0
