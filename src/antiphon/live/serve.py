"""The server process: put together, run until a signal says otherwise, taken apart in order.

take the port ─► load the model ─► worker ─► gateway ─► HTTP
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
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvloop
from fastapi import FastAPI

from antiphon.engine import use_cores
from antiphon.errors import ConfigError
from antiphon.types import Config, HttpConfig, Incarnation, WorkerId, WorkerInfo
from antiphon.wire import DecisionLogWriter

from .gateway import Gateway, Keyring, Metrics, Prompts, Service, create_app
from .http_server import HttpServer
from .listener import listen
from .loaded_model import LoadedModel, load_model
from .worker import Worker


def serve(config: Config, say: Callable[[str], None], announce: Callable[[str], None]) -> int:
    """Serve until a signal comes; returns the exit code (0: what ran was finished).

    `say` gets lines about the start, `announce` those for the user once requests are answered.
    Raises `UsageError` if the port, a file, the model or the memory is not right.
    """
    keys = _keys(config.http)
    with _sigterm_leaves(), listen(config.http) as listener, _decision_log(config) as log:
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
            http = HttpServer(
                self._app(gateway, metrics, worker),
                max_connections=self._config.http.max_connections,
                on_started=self._greet,
            )
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
    def _handled_signals(self, gateway: Gateway, http: HttpServer) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number, gateway, http)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _signalled(self, number: int, gateway: Gateway, http: HttpServer) -> None:
        self._signals += 1
        if self._signals == 1:
            self._stopping = asyncio.create_task(self._drain(gateway, http))
            self._announce("Stopping: what runs is finished (again: stop at once)")
            return
        self._exit_code = 128 + number
        if self._stopping is not None:
            self._stopping.cancel()
        http.force_exit = True
        http.should_exit = True

    async def _drain(self, gateway: Gateway, http: HttpServer) -> None:
        await gateway.drain(self._config.http.drain_timeout_s)
        http.should_exit = True


def _keys(config: HttpConfig) -> Keyring:
    return Keyring.from_file(Path(config.api_key_file)) if config.api_key_file else Keyring()


@contextlib.contextmanager
def _sigterm_leaves() -> Iterator[None]:
    """Until the server has handlers of its own: SIGTERM unwinds the start and exits 0."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(0)

    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextlib.contextmanager
def _decision_log(config: Config) -> Iterator[DecisionLogWriter | None]:
    if config.log.decisions is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            descriptor = _open_private(config.log.decisions)
            writer = DecisionLogWriter(stack.enter_context(os.fdopen(descriptor, "wb")))
        except OSError as error:
            raise ConfigError(
                f'log.decisions = "{config.log.decisions}": can\'t be written ({error.strerror})'
            ) from None
        yield writer


def _open_private(path: str) -> int:
    """Open a file for writing, empty, that only this user can read, whoever made it.

    The log holds what people wrote, as token ids. Links are not followed: a prepared one would
    choose what is overwritten. What is no regular file (a pipe, a device) stays as it is.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
