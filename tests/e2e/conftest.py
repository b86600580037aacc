"""Real server processes. One with the real model serves the client's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_process import Served

from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_gguf


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    """SmolLM2-135M on a free port."""
    served = Served("serve", "smollm2-135m", "--port", "0", "--kv-memory", "256MB")
    yield served
    assert served.stop() == 0, "".join(served.output)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that starts and answers quickly."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_gguf(path, TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture
def serve(tiny: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers of the tiny model; whatever still runs afterwards is killed."""
    started: list[Served] = []

    def start(*arguments: str) -> Served:
        served = Served("serve", str(tiny), "--port", "0", "--kv-memory", "8MiB", *arguments)
        started.append(served)
        return served

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()
