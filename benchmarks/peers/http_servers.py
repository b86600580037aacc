"""Servers with an OpenAI API, each as its users start it, one after the other on the same cores."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from environment import LLAMA_CPP, python_of

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
START_S = 600.0
STOP_S = 60.0
POLL_S = 0.1
MODEL = "measured"
SLOTS = 16
"""Requests that llama.cpp computes at once; its memory is divided among them."""
SLOT_TOKENS = 2048


class NotServing(Exception):
    """A server that has ended, or does not answer; the message is the end of what it printed."""


@dataclass(frozen=True)
class Contender:
    """A server to measure. `command` starts it on a port.

    `reads_input`: it lives until its standard input ends (else until SIGTERM).
    """

    name: str
    command: Callable[[int], Sequence[str]]
    note: str = ""
    reads_input: bool = False


def antiphon(name: str, model: str, cores: Sequence[int], *arguments: str) -> Contender:
    """`antiphon serve` with these workers."""

    def command(port: int) -> Sequence[str]:
        serve = [sys.executable, "-m", "antiphon", "serve", model, "--port", str(port)]
        where = ["--cores", ",".join(map(str, cores)), "--served-model-name", MODEL]
        return [*serve, *where, *arguments]

    return Contender(name, command, "int8 weights, bf16 KV")


def llama_cpp(model: str, cores: Sequence[int], folder: Path) -> Contender:
    """llama.cpp's server; its virtualenv must be there (`environment.prepare`)."""

    def command(port: int) -> Sequence[str]:
        settings = {
            "model": model,
            "port": port,
            "threads": len(cores),
            "slots": SLOTS,
            "slot_tokens": SLOT_TOKENS,
        }
        script = HERE / "llama_cpp_server.py"
        return [str(python_of(LLAMA_CPP, folder)), str(script), json.dumps(settings)]

    note = f"4-bit weights, fp16 KV, {SLOTS} slots, continuous batching; {LLAMA_CPP.package}"
    return Contender("llama.cpp", command, note, reads_input=True)


def vllm(python: Path, model: str) -> Contender:
    """vLLM's CPU build in an environment of yours: its wheel is not on PyPI."""

    def command(port: int) -> Sequence[str]:
        serve = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
        return [*serve, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL]

    return Contender("vLLM (CPU)", command, f"arithmetic as vLLM chooses; weights from {model}")


@contextlib.contextmanager
def serving(contender: Contender, cores: Sequence[int]) -> Iterator[str]:
    """Its URL, once it has answered a chat; gone afterwards, with all that it started.

    Raises `NotServing` if it does not come up.
    """
    port = _free_port()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            contender.command(port),
            stdin=subprocess.PIPE if contender.reads_input else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": str(len(cores))},
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            if not _answers(process, url):
                output.seek(0)
                lines = output.read().strip().splitlines() or ["it printed nothing"]
                raise NotServing(f"{contender.name}: {lines[-1]}")
            yield url
        finally:
            _end(process)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    """Whether it answers a chat in time: whatever is made ready at the first one is ready."""
    body = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                answer.read()
                return True
        except (OSError, http.client.HTTPException):
            time.sleep(POLL_S)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # The session is its own: whatever it has started and left goes too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
