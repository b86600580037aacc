"""A worker with a tiny model, in whose folder a store listens that does what a test says."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fetched_prompt import PROMPT
from scripted_store import ScriptedStore
from store_worker import loaded, request, said_alone, tiny_model

from antiphon.types import KvShape


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def shape(model: Path) -> KvShape:
    region = loaded(model).region
    assert region is not None
    return region.shape


@pytest.fixture(scope="session")
def expected(model: Path) -> tuple[int, ...]:
    return asyncio.run(said_alone(model, request("r", PROMPT)))


@pytest.fixture
async def folder(model: Path) -> AsyncIterator[Path]:
    """The model's folder is the sockets' too. Law: nobody leaves anything there."""
    model.chmod(0o700)
    yield model
    assert not list(model.glob("*.sock"))


@pytest.fixture
async def store(folder: Path, shape: KvShape) -> AsyncIterator[ScriptedStore]:
    async with ScriptedStore(folder, shape) as one:
        yield one
