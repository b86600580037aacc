"""The admin routes by HTTP: on the cluster's socket, and behind the token."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from scripted_fleet import ScriptedFleet
from starlette.responses import PlainTextResponse

from antiphon.errors import ConfigError, PeerError, UsageError
from antiphon.live import local_servers
from antiphon.live.admin.app import AdminGate, admin_app, read_token
from antiphon.live.admin.client import SOCKET, AdminClient, find_server
from antiphon.live.admin.operations import Operations
from antiphon.live.http_server import HttpServer
from antiphon.live.listener import listen
from antiphon.live.local_servers import registered
from antiphon.live.socket_folder import listen as listen_privately
from antiphon.types import HttpConfig, Role

TOKEN = "0123456789abcdef"


def operations() -> Operations:
    made = Operations("tiny", lambda message: None, 60.0)
    made.attach(ScriptedFleet(a=Role.MIXED, b=Role.DECODE))
    return made


def gate(token: bytes | None) -> AdminGate:
    return AdminGate(PlainTextResponse("the API"), admin_app(operations()), token)


@contextlib.asynccontextmanager
async def caller(token: bytes | None) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(gate(token))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield client


async def test_the_token_opens_the_admin_routes_and_nothing_else_does() -> None:
    async with caller(TOKEN.encode()) as client:
        good = {"Authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/admin/status", headers=good)).json()["model"] == "tiny"
        for bad in ({}, {"Authorization": f"Bearer {TOKEN}0"}, {"Authorization": "Bearer é"}):
            encoded = {name: value.encode() for name, value in bad.items()}
            refused = await client.get("/admin/status", headers=encoded)
            assert refused.status_code == 401
            assert "tiny" not in refused.text
        assert (await client.get("/v1/models")).text == "the API"


async def test_without_a_token_there_are_no_admin_routes_on_the_address() -> None:
    async with caller(None) as client:
        assert (await client.get("/admin/status")).text == "the API"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("a/drain", b'{"timeout_s": -1}', 400, "timeout_s must be from 0"),
        ("a/drain", b'{"timeout_s": "x"}', 400, "Expected `float`"),
        ("a/drain", b"{", 400, "the body is not what it should be"),
        ("a/drain", b'{"timeout_s": 1, "role": "mixed"}', 400, "role takes a role too"),
        ("a/role", b'{"timeout_s": 1}', 400, "role takes a role too"),
        ("a/role", b'{"timeout_s": 1, "role": "boss"}', 400, "Invalid enum value"),
        ("a/role", b'{"timeout_s": 1, "rule": "mixed"}', 400, "unknown field"),
        ("a/fly", b'{"timeout_s": 1}', 400, "role takes a role too"),
        ("q/drain", b'{"timeout_s": 1}', 404, "known are a, b"),
        ("a/drain", b" " * 5000, 413, "too long"),
    ],
)
async def test_bad_orders(path: str, body: bytes, status: int, message: str) -> None:
    async with caller(TOKEN.encode()) as client:
        answer = await client.post(
            f"/admin/workers/{path}", content=body, headers={"Authorization": f"Bearer {TOKEN}"}
        )
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The admin routes of a registered server on its socket, and on TCP; yields its URL."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ready, stop = threading.Event(), threading.Event()
    urls: list[str] = []

    async def serve() -> None:
        with registered(None) as entry, listen(HttpConfig(port=0)) as tcp:
            inside = listen_privately(entry.sockets / SOCKET)
            started = asyncio.Event()
            server = HttpServer(admin_app(operations()), max_connections=8, on_started=started.set)
            outer = HttpServer(gate(TOKEN.encode()), max_connections=8, on_started=lambda: None)
            running = asyncio.gather(server.serve([inside]), outer.serve([tcp]))
            await started.wait()
            urls.append(f"http://127.0.0.1:{tcp.getsockname()[1]}")
            entry.publish(urls[0])
            ready.set()
            await asyncio.to_thread(stop.wait)
            server.should_exit = outer.should_exit = True
            await running

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    yield urls[0]
    stop.set()
    thread.join(30)


def test_the_only_server_is_found_without_being_named(served: str) -> None:
    client = find_server(None, None)
    assert [worker["id"] for worker in client.get("/admin/status")["workers"]] == ["a", "b"]
    assert client.order("a", "drain", 1.0)["health"] == "draining"
    assert client.order("a", "role", 1.0, role="prefill")["role"] == "prefill"
    with pytest.raises(UsageError, match="known are a, b"):
        client.order("a/../b", "drain", 1.0)
    with pytest.raises(PeerError, match="last worker that decodes"):
        client.order("b", "drain", 1.0)


def test_a_local_one_is_named_by_its_address(served: str) -> None:
    for url in (served, served + "/", served.replace("127.0.0.1", "localhost")):
        assert find_server(url, None).get("/admin/status")["model"] == "tiny"


def test_by_its_address_alone_it_wants_the_token(served: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert find_server(served, file).get("/admin/status")["model"] == "tiny"
    file.write_text("0" * 16)
    with pytest.raises(UsageError, match="token is missing or wrong"):
        find_server(served, file).get("/admin/status")


def test_which_of_several_is_asked_back(served: str) -> None:
    with registered(None) as other:
        other.publish("http://127.0.0.1:1")
        with pytest.raises(UsageError, match=r"--url: .*http://127\.0\.0\.1:1 .pid"):
            find_server(None, None)
        assert find_server(served, None).get("/admin/status")["model"] == "tiny"
        gone: AdminClient = find_server("http://127.0.0.1:1", None)
        with pytest.raises(PeerError, match="is it running"):
            gone.get("/admin/status")


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert local_servers.running_servers() == ()
    with pytest.raises(PeerError, match="antiphon serve"):
        find_server(None, None)
    with pytest.raises(UsageError, match="--token-file"):
        find_server("http://127.0.0.1:1", None)
    file = tmp_path / "token"
    with pytest.raises(UsageError, match="can't be read"):
        find_server("http://127.0.0.1:1", file)
    file.write_text(TOKEN)
    for url in ("127.0.0.1:8000", "ftp://x", "http://x:99999", "http://x/v1", "http://[::1"):
        for token in (file, None):
            with pytest.raises(UsageError, match=r"address|range|IPv6"):
                find_server(url, token)
    with pytest.raises(PeerError, match="is it running"):
        find_server("http://127.0.0.1:1", file).get("/admin/status")


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"short", 0o600, "16 to 512"),
        (b"two words that are long enough", 0o600, "one word"),
        (b"x" * 513, 0o600, "16 to 512"),
        (TOKEN.encode(), 0o644, "chmod 600"),
        (None, 0, "No such file"),
    ],
)
def test_bad_tokens(tmp_path: Path, content: bytes | None, mode: int, message: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(ConfigError, match=message) as caught:
        read_token(str(file))
    assert "http.admin_token_file" in str(caught.value)
