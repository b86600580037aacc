"""Our server as a user starts it: `antiphon serve`, asked over HTTP on loopback."""

import json
import random
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

from contestant import QUESTION, Setup
from process import LONGEST_S, Child, Failed, Pass

POLL_S = 0.01
NAME = "measured"
KV_MAPPING = "/dev/zero (deleted)"
"""How the system calls the KV memory of a worker that shares it with nobody: an anonymous mmap."""


class AntiphonServer(Child):
    """Answers the commands of the row "start" as a `process.Competitor` does."""

    def __init__(self, setup: Setup, cores: Sequence[int], env: Mapping[str, str]) -> None:
        self._setup = setup
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "antiphon",
            "serve",
            setup.model,
            "--quantize",
            setup.quantize,
        ]
        command += ["--port", str(self._port), "--served-model-name", NAME]
        # The peers keep nothing beyond their process: neither do we.
        command += ["--kv-memory", "64MiB", "--max-model-len", "1024", "--store", "off"]
        super().__init__(command, cores, env, talks=False)

    @property
    def resident_bytes(self) -> int:
        """Beyond the KV memory, as much of it as has been touched."""
        return super().resident_bytes - self._family_bytes(KV_MAPPING)

    def ask(self, command: str) -> Pass:
        """Ask until the server is there and answers. Raises `Failed`."""
        started = time.perf_counter()
        while self.process.poll() is None and time.perf_counter() - started < LONGEST_S:
            try:
                self._post(command)
            except urllib.error.HTTPError as refusal:
                if refusal.code != 503:
                    raise Failed(f"HTTP {refusal.code}: {refusal.read().decode()}") from None
            except (urllib.error.URLError, ConnectionError):
                pass
            else:
                return Pass(time.perf_counter() - started, 0.0)
            time.sleep(POLL_S)
        raise self.failed()

    def _post(self, command: str) -> None:
        match command:
            case "answer":
                path = "chat/completions"
                body = {"messages": [{"role": "user", "content": QUESTION}]}
            case _:
                chance = random.Random(0)
                tokens = [chance.randrange(100, 49_000) for _ in range(self._setup.tokens)]
                path, body = "completions", {"prompt": tokens}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/v1/{path}",
            json.dumps({"model": NAME, "max_tokens": 1} | body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LONGEST_S) as answer:
            json.load(answer)
