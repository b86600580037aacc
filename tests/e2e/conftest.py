"""Real server processes. Those that can serve several tests are started once."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from e2e_process import SHAPES, Served, config_file, joined

from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf

TINY_CONTEXT = 4096


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """SmolLM2-135M on a free port: one mixed worker."""
    served = Served("serve", "smollm2-135m", "--port", "0", "--kv-memory", "256MB")
    yield served
    assert served.stop() == 0, "".join(served.output)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that starts and answers quickly."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    spec = replace(TINY_SPEC, context_len=TINY_CONTEXT)
    return write_gguf(path, spec, random_tensors(spec, seed=1))


@pytest.fixture
def serve(tiny: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers of the tiny model; whatever still runs afterwards is killed."""
    started: list[Served] = []

    def start(*arguments: str, model: Path = tiny) -> Served:
        served = Served("serve", str(model), "--port", "0", "--kv-memory", "8MiB", *arguments)
        started.append(served)
        return served

    yield start
    for served in started:
        kill(served)


@pytest.fixture(scope="session")
def cluster(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Served]]:
    """`cluster("1P2D")`: a cluster of the tiny model, with all workers there. Tests share it.

    Its targets are so tight that no decode worker computes a prompt while a prefill worker is
    there to do it. It must end well when all tests are done.
    """
    file = config_file(
        tmp_path_factory.mktemp("cluster") / "cluster.toml",
        model={"name": str(tiny)},
        http={"port": 0},
        kv={"memory_bytes": "8MiB"},
        cluster={"heartbeat_s": 0.2, "lost_after_s": 4, "restart_backoff_s": 0.05},
        router={"tpot_s": 0.0001},
    )
    started: dict[str, Served] = {}

    def get(shape: str) -> Served:
        if shape not in started:
            started[shape] = Served("serve", str(file), *SHAPES[shape])
        started[shape].until(joined)
        return started[shape]

    yield get
    try:
        for served in started.values():
            served.process.send_signal(signal.SIGTERM)
        codes = {shape: served.exit_code() for shape, served in started.items()}
        assert not any(codes.values()), codes
    finally:
        for served in started.values():
            kill(served)


def kill(served: Served) -> None:
    if served.process.poll() is None:
        served.process.kill()
        served.process.wait()
