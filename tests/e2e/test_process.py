"""The server as a process: start, signals, and what it says when something is not right."""

import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e_process import Served, antiphon, run
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.wire import read_decision_log
from command_here import run_here

Start = Callable[..., Served]
LONG: dict[str, Any] = {"prompt": "the", "max_tokens": 240, "ignore_eos": True, "stream": True}


def endless(served: Served, **fields: Any) -> Any:
    """A stream that runs for a while, opened up to its first line."""
    body = {"model": "tiny", **LONG, **fields}
    return httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60)


def test_sigterm_finishes_what_runs_refuses_what_is_new_and_exits_0(serve: Start) -> None:
    served = serve()
    with endless(served, n=8) as stream:
        lines = stream.iter_lines()
        first = next(lines)
        served.process.send_signal(signal.SIGTERM)
        refused = httpx.post(f"{served.url}/v1/completions", json={"model": "tiny", "prompt": "x"})
        rest = [line for line in lines if line]
    assert first.startswith("data: ")
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert rest[-1] == "data: [DONE]"
    ends = [line for line in rest if '"finish_reason":"length"' in line]
    assert len(ends) == 8
    assert served.exit_code() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{served.url}/health")


def test_sigterm_while_the_model_loads_exits_0(tiny: Path) -> None:
    loading = subprocess.Popen(
        antiphon("serve", str(tiny), "--port", "0", "--kv-memory", "8MiB"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert loading.stderr is not None
    for line in loading.stderr:
        if "Opening" in line:
            break
    loading.send_signal(signal.SIGTERM)
    output, errors = loading.communicate(timeout=60)
    assert loading.returncode == 0, errors
    assert "Traceback" not in errors
    assert "serves" not in output


def test_nobody_needs_to_read_what_the_server_says(tiny: Path) -> None:
    """As in `antiphon serve | head`: the reader has gone, requests and signals work on."""
    process = subprocess.Popen(
        antiphon("serve", str(tiny), "--port", "0", "--kv-memory", "8MiB"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    url = ""
    for line in process.stdout:
        if " on http://" in line:
            url = line.split(" on ")[1].strip()
            break
    process.stdout.close()
    body = {"model": "tiny", "prompt": "x", "max_tokens": 1}
    assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_the_second_signal_stops_at_once(serve: Start) -> None:
    served, number = serve(), signal.SIGTERM
    streams = [endless(served, n=64) for _ in range(4)]
    opened = [stream.__enter__() for stream in streams]
    first = [next(response.iter_lines()) for response in opened]
    assert len(first) == 4
    served.process.send_signal(number)
    while not any("Stopping" in line for line in served.output):
        served.process.poll()
        assert served.process.returncode is None
    assert served.stop(number) == 128 + number
    assert "Traceback" not in "".join(served.output)


def test_an_idle_server_stops_at_once(serve: Start) -> None:
    served = serve()
    assert served.stop(signal.SIGINT) == 0
    assert "Traceback" not in "".join(served.output)


def test_keys_names_and_a_decision_log_that_is_private_whoever_made_the_file(
    serve: Start, tmp_path: Path
) -> None:
    keys, log = tmp_path / "keys", tmp_path / "decisions.jsonl"
    keys.write_text("# mine\nsecret-key\n")
    keys.chmod(0o600)
    log.write_text("something older, and readable")
    log.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(log)
    assert run("serve", "tiny", "--port", "0", "--decision-log", str(link)).returncode == 2
    assert log.read_text() == "something older, and readable"
    served = serve(
        "--api-key-file", str(keys), "--served-model-name", "mine", "--decision-log", str(log)
    )
    body = {"model": "mine", "prompt": "the", "max_tokens": 3, "ignore_eos": True}
    url = f"{served.url}/v1/completions"
    assert httpx.post(url, json=body).status_code == 401
    assert httpx.get(f"{served.url}/health").status_code == 200
    good = httpx.post(url, json=body, headers={"Authorization": "Bearer secret-key"})
    assert good.json()["usage"]["completion_tokens"] == 3
    assert any("Authorization: Bearer KEY" in line for line in served.output)
    for pid in served.pids()[1:]:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert len([word for word in command if word]) == 6, "no secret is on a command line"
    assert served.stop() == 0
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    worker = log.with_name("decisions.mixed-0.jsonl")
    assert stat.S_IMODE(worker.stat().st_mode) == 0o600
    methods = {}
    for file in (log, worker):
        with file.open("rb") as lines:
            methods[file] = [entry.method for entry in read_decision_log(lines).entries]
        replayed = run_here("replay", str(file))
        assert replayed.returncode == 0, replayed.stdout
        assert f"The same: {len(methods[file])} decisions" in replayed.stdout
    assert methods[log].count("start") == 1
    assert methods[worker].count("add") == 1
    assert methods[worker].count("complete") >= 3


def refusal(*arguments: str) -> str:
    """The one line of a command that must end with exit code 2."""
    done = run("serve", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.startswith("antiphon: ")]
    assert len(lines) == 1
    assert done.stderr.endswith(lines[0] + "\n")
    assert "Traceback" not in done.stderr
    return lines[0]


def test_the_port_is_taken(cluster: Callable[[str], Served], tiny: Path) -> None:
    served = cluster("1M")
    line = refusal(str(tiny), "--port", str(served.port))
    assert str(served.port) in line
    assert "--port" in line


def test_a_truncated_file(tiny: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny.read_bytes()[:-1000])
    line = refusal(str(cut), "--port", "0")
    assert str(cut) in line
    assert "tensor" in line


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("no/such.gguf",), ("no/such.gguf",)),
        (("MODEL", "--kv-memory", "60TiB"), ("--kv-memory", "free")),
        (("MODEL", "--max-model-len", "100000"), ("model.max_model_len", "4096")),
        (("MODEL", "--cores", "60000"), ("60000",)),
        (("MODEL", "--host", "0.0.0.0"), ("--api-key-file",)),
        (("MODEL", "--host", "no.such.host.invalid", "--api-key-file", "KEYS"), ("http.host",)),
        (("MODEL", "--api-key-file", "/no/such/file"), ("/no/such/file",)),
        (("MODEL", "--decision-log", "/no/such/folder/log"), ("log.decisions",)),
    ],
)
def test_what_is_not_right_is_one_line(
    tiny: Path, tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("key\n")
    given = {"MODEL": str(tiny), "KEYS": str(keys)}
    arguments = tuple(given.get(argument, argument) for argument in arguments)
    done = CliRunner().invoke(app, ["serve", *arguments, "--port", "0"])
    assert done.exit_code == 2
    assert done.stdout == ""
    line = done.stderr.splitlines()[-1]
    assert line.startswith("antiphon: ")
    for part in parts:
        assert part in line
