"""The server process: put together, run until a signal says otherwise, taken apart in order.

bind the port ─► load the model ─► worker ─► gateway ─► HTTP
                                                         │ first SIGTERM or Ctrl-C:
                                                         │   refuse what is new, finish what runs
                                                         │ second: stop at once
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
import uvloop
from fastapi import FastAPI

from antiphon.engine import use_cores
from antiphon.errors import ConfigError, UsageError
from antiphon.types import Config, HttpConfig, Incarnation, WorkerId, WorkerInfo
from antiphon.wire import DecisionLogWriter

from .gateway import Gateway, Keyring, Metrics, Prompts, Service, create_app
from .loaded_model import LoadedModel, load_model
from .worker import Worker

_LAST_BYTES_S = 5
"""How long connections may take to send their last bytes once every request has ended."""


def serve(config: Config, say: Callable[[str], None], announce: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code (0: what ran was finished).

    `say` gets lines about the start, `announce` those for the user once requests are answered.
    Raises `UsageError` if the port, a file, the model or the memory is not right.
    """
    keys = _keys(config.http)
    with _bound(config.http) as listener, _decision_log(config) as log:
        use_cores(config.engine.cores)
        model = load_model(config, say)
        server = Server(config, model, keys, listener, announce)
        return uvloop.run(server.run(log))


class Server:
    """One worker, its gateway and HTTP, on one event loop."""

    def __init__(
        self,
        config: Config,
        model: LoadedModel,
        keys: Keyring,
        listener: socket.socket,
        announce: Callable[[str], None],
    ) -> None:
        self._config = config
        self._model = model
        self._keys = keys
        self._listener = listener
        self._announce = announce
        self._served_name = config.model.served_name or model.info.name
        self._signals = 0
        self._exit_code = 0
        self._stopping: asyncio.Task[None] | None = None

    async def run(self, log: DecisionLogWriter | None) -> int:
        """Serve until a signal; returns the exit code. Raises what broke the worker, if any."""
        model = self._model
        info = WorkerInfo(
            id=WorkerId("worker-0"),
            incarnation=Incarnation(secrets.token_hex(8)),
            model=model.info,
            max_model_len=model.max_model_len,
        )
        async with Worker(
            info,
            model.scheduler,
            model.engine,
            clock=time.monotonic,
            log_decision=log,
        ) as worker:
            metrics = Metrics(self._served_name, worker.view)
            gateway = Gateway(worker, model.tokenizer, metrics, clock=time.monotonic)
            http = _Http(self._app(gateway, metrics, worker), self._config.http)
            http.on_started = self._greet
            hearing = asyncio.create_task(gateway.run())
            serving = asyncio.create_task(http.serve(sockets=[self._listener]))
            with self._handled_signals(gateway, http):
                await asyncio.wait((hearing, serving), return_when=asyncio.FIRST_COMPLETED)
                http.should_exit = True
                await serving
            if hearing.done():
                hearing.result()
            hearing.cancel()
            await asyncio.wait((hearing,))
        return self._exit_code

    def _app(self, gateway: Gateway, metrics: Metrics, worker: Worker) -> FastAPI:
        service = Service(
            gateway=gateway,
            prompts=Prompts(self._model.tokenizer, self._model.template),
            metrics=metrics,
            worker=worker.info,
            served_name=self._served_name,
            config=self._config.http,
            clock=time.monotonic,
            created=int(time.time()),
            worker_healthy=lambda: worker.healthy,
        )
        return create_app(service, self._keys)

    def _greet(self) -> None:
        host, port = self._listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        key = " -H 'Authorization: Bearer KEY'" if len(self._keys) else ""
        self._announce(f"Antiphon serves {self._served_name} on {url}")
        self._announce("Try it:")
        self._announce(
            f"  curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d "
            f"""'{{"model": "{self._served_name}", "temperature": 0, "messages": """
            """[{"role": "user", "content": "What is the capital of France?"}]}'"""
        )
        self._announce(f"Docs: {url}/docs (the API), docs/guides/quickstart.md (all else)")

    # ── signals ──────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _handled_signals(self, gateway: Gateway, http: "_Http") -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number, gateway, http)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _signalled(self, number: int, gateway: Gateway, http: "_Http") -> None:
        self._signals += 1
        if self._signals == 1:
            self._announce("Stopping: what runs is finished (again: stop at once)")
            self._stopping = asyncio.create_task(self._drain(gateway, http))
            return
        self._exit_code = 128 + number
        if self._stopping is not None:
            self._stopping.cancel()
        http.force_exit = True
        http.should_exit = True

    async def _drain(self, gateway: Gateway, http: "_Http") -> None:
        await gateway.drain(self._config.http.drain_timeout_s)
        http.should_exit = True


class _Http(uvicorn.Server):
    """uvicorn without its own signal handlers, which would end streams in the middle."""

    on_started: Callable[[], None]

    def __init__(self, app: FastAPI, config: HttpConfig) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_LAST_BYTES_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: `Server` has them."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.on_started()


def _keys(config: HttpConfig) -> Keyring:
    return Keyring.from_file(Path(config.api_key_file)) if config.api_key_file else Keyring()


def _bound(config: HttpConfig) -> socket.socket:
    """A socket that has the port and does not listen yet: whoever connects too early is refused."""
    try:
        family, *_, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise ConfigError(f'http.host = "{config.host}": no such address') from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {config.port} on {config.host} can't be used ({error.strerror}): stop what "
            f"listens there, or choose another with --port"
        ) from None
    return listener


@contextlib.contextmanager
def _decision_log(config: Config) -> Iterator[DecisionLogWriter | None]:
    if config.log.decisions is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            # It holds what people wrote, as token ids: nobody else may read it.
            descriptor = os.open(config.log.decisions, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            writer = DecisionLogWriter(stack.enter_context(os.fdopen(descriptor, "wb")))
        except OSError as error:
            raise ConfigError(
                f'log.decisions = "{config.log.decisions}": can\'t be written ({error.strerror})'
            ) from None
        yield writer
