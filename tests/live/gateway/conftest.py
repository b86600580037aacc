"""A served model without a model: the real tokenizer, a puppet or a scripted worker, real HTTP."""

from collections.abc import AsyncIterator

import httpx
import pytest
from gateway_kit import listening, serving
from puppet_cluster import Chosen, Cluster
from puppet_link import PuppetLink, worker_info

from antiphon.checkpoint import TokenizerSource, open_checkpoint, resolve
from antiphon.core.requests.dispatcher import Dispatcher
from antiphon.live.gateway import Keyring, Service, create_app
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.types import HttpConfig, Role


@pytest.fixture(scope="session")
def source() -> TokenizerSource:
    return open_checkpoint(resolve("smollm2-135m")).tokenizer


@pytest.fixture(scope="session")
def tokenizer(source) -> Tokenizer:
    return Tokenizer.load(source)


@pytest.fixture(scope="session")
def template(tokenizer, source) -> ChatTemplate:
    return ChatTemplate(source.chat_template, tokenizer.bos_token, tokenizer.eos_token)


@pytest.fixture
def config() -> HttpConfig:
    return HttpConfig(keep_alive_s=30.0, max_body_bytes=256 * 1024)


@pytest.fixture
def keys() -> Keyring:
    return Keyring()


@pytest.fixture
async def puppet(tokenizer) -> PuppetLink:
    return PuppetLink(worker_info(vocab_size=tokenizer.vocab_size, eos=tokenizer.eos_token_ids))


@pytest.fixture
async def service(puppet, tokenizer, template, config) -> AsyncIterator[Service]:
    async with serving(puppet, tokenizer, template, config) as service:
        yield service


@pytest.fixture
async def client(service, keys) -> AsyncIterator[httpx.AsyncClient]:
    """Straight into the application, without sockets. Unlike a socket, it can't disconnect."""
    transport = httpx.ASGITransport(create_app(service, keys), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.fixture
async def url(service, keys) -> AsyncIterator[str]:
    async with listening(create_app(service, keys)) as url:
        yield url


@pytest.fixture
def pair(tokenizer, template, config) -> Cluster:
    """Two mixed workers; `a` is chosen while it lives."""
    cluster = Cluster(tokenizer, template, config, Chosen("a", "b"))
    cluster.puppet("a")
    cluster.puppet("b")
    return cluster


@pytest.fixture
def split(tokenizer, template, config) -> Cluster:
    """One prefill worker, two that decode; `d` is chosen while it lives."""
    cluster = Cluster(tokenizer, template, config, Chosen("d", "e", prefill=("p",)))
    cluster.puppet("p", Role.PREFILL)
    cluster.puppet("d", Role.DECODE)
    cluster.puppet("e", Role.DECODE)
    return cluster


@pytest.fixture(autouse=True)
def puppets_end_where_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a test says when an answer is complete; `tests/core/requests` has the book check it."""
    monkeypatch.setattr(Dispatcher, "cuts_short", lambda *_: False)
