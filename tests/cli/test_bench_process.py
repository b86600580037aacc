"""`antiphon bench` on scripted servers: what it prints, keeps, and ends with."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing.free_ports import free_ports
from antiphon.testing.scripted_calls import Behaviour, Ending, Script
from antiphon.testing.scripted_server import scripted_server
from command_here import run_here

FILES = {"run.json", "requests.jsonl", "summary.json", "report.html"}
LOAD = ("--workload", "fixed:input=8,output=4", "--rate", "40", "--duration", "1s")
LAX = ("--slo", "ttft=60s,tpot=60s")
LONGEST_S = 120.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", "bench", *arguments]


def bench(*arguments: str) -> Any:
    return run_here("bench", *arguments)


def bench_process(*arguments: str, cwd: Path | None = None) -> Any:
    """As its users start it."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=LONGEST_S, cwd=cwd
    )


def failure(*arguments: str) -> str:
    """The one line that it ends with, after lines about what it did; exit code 1."""
    done = bench(*arguments)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    models = {
        "good": Behaviour(ttft_s=0.01, gap_s=0.001),
        "slow": Behaviour(ttft_s=0.2),
        "failing": Behaviour(ending=Ending.STATUS_500),
        "half": Behaviour(ending=Ending.HALF),
        "uncounted": Behaviour(usage=False, tokens_a_piece=2),
    }
    with scripted_server(Script(models=models)) as server:
        yield server.url


@pytest.fixture(scope="module")
def run(url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that went well."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    done = bench_process(url, "--model", "good", *LOAD, *LAX, "-o", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"Report: {folder}/report.html" in done.stderr
    assert re.search(
        r"At [\d.]+ requests/s (\(40 planned\) )?100 % .* of \d+ calls met", done.stdout
    )
    return folder


def test_a_run_leaves_all_its_files(run: Path) -> None:
    assert {file.name for file in run.iterdir()} == FILES
    told = json.loads((run / "run.json").read_text())
    assert told["model"] == "good"
    assert told["rate_per_s"] == 40
    assert told["warmup_s"] == 0.1
    assert told["command"].startswith("antiphon bench http://127.0.0.1")
    records = [json.loads(line) for line in (run / "requests.jsonl").open()]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["calls"] + summary["warmup_calls"] == len(records) > 10
    assert all(record["error"] is None and record["output_tokens"] == 4 for record in records)


def test_a_report_loads_nothing(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "<svg" in page
    loaded = re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)|url\(([^)]+)\)""", page)
    assert [one for pair in loaded for one in pair if one and not one.startswith("#")] == []
    assert "<script" not in page


def test_it_is_not_overwritten_unless_that_is_asked_for(run: Path) -> None:
    """Nor is the server asked for anything: nobody is there."""
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    done = bench(f"http://127.0.0.1:{free_ports(1)}", *LOAD, "-o", str(run))
    assert done.returncode == 2
    assert f"{run}: holds another run" in done.stderr
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


def test_it_is_drawn_again_from_its_files(run: Path) -> None:
    page = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    done = bench("report", str(run))
    assert done.returncode == 0, done.stderr
    assert re.search(r"At (40|[\d.]+ requests/s \(40 planned)", done.stdout)
    assert (run / "report.html").read_bytes() == page


def test_runs_side_by_side(url: str, run: Path, tmp_path: Path) -> None:
    other, page = tmp_path / "slow", tmp_path / "pages/comparison.html"
    page.parent.mkdir()
    options = ("--title", "the slow one", *LOAD, *LAX, "-o", str(other))
    assert bench(url, "--model", "slow", *options).returncode == 0
    done = bench("compare", str(run), str(other), "-o", str(page))
    assert done.returncode == 0, done.stderr
    assert "the slow one" in done.stdout
    assert "TTFT" in done.stdout
    assert "the slow one" in page.read_text()
    compared = bench("compare", str(run), str(other), "--json")
    assert "the slow one" in json.loads(compared.stdout)["names"]


def test_json_alone_is_on_stdout_and_nothing_is_kept(url: str, tmp_path: Path) -> None:
    arguments = (
        url,
        "--model",
        "good",
        *LOAD,
        *LAX,
        "--requests",
        "12",
        "--warmup",
        "0s",
        "--json",
    )
    done = bench_process(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["calls"], summary["ok"]) == (12, 12)
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_counted_by_a_tokenizer_where_the_server_counts_none(url: str) -> None:
    arguments = (url, "--model", "uncounted", *LOAD, "--requests", "3", "--warmup", "0s", "--json")
    done = bench(*arguments, "--tokenizer", "smollm2-135m")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counted_by"] == [["tokenizer", 3]]


BY_SIGNAL = pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@BY_SIGNAL
def test_a_run_that_is_stopped_keeps_what_has_ended(
    url: str, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    arguments = (url, "--model", "good", "--workload", "fixed:input=8,output=4", "--rate", "40")
    process = subprocess.Popen(
        command(*arguments, "--duration", "10min", *LAX, "-o", str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_lines(folder / "requests.jsonl", 5, process)
        process.send_signal(sent)
        output, errors = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "Interrupted after" in " ".join(output.split())
    assert {file.name for file in folder.iterdir()} == FILES - {"summary.json"}
    assert "Interrupted after" in (folder / "report.html").read_text()
    again = bench("report", str(folder))
    assert again.returncode == 0, again.stderr


@BY_SIGNAL
def test_a_search_that_is_stopped_tells_what_was_found(
    url: str, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    folder = tmp_path / "search"
    options = ("--find-goodput", "--workload", "fixed:input=8,output=1", "--rate", "20")
    process = subprocess.Popen(
        command(url, "--model", "good", *options, "--duration", "5min", *LAX, "-o", str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_lines(folder / "rate-20/requests.jsonl", 3, process)
        process.send_signal(sent)
        output, errors = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert "Goodput" in output
    search = json.loads((folder / "search.json").read_text())
    assert (search["goodput"]["stopped"], search["probes"]) == ("unfinished", ["rate-20"])
    assert (folder / "report.html").exists()
    assert (folder / "rate-20/report.html").exists()


def wait_for_lines(file: Path, lines: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LONGEST_S
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


# Servers that can't be measured


def test_nobody_there() -> None:
    said = failure(f"http://127.0.0.1:{free_ports(1)}", *LOAD)
    assert "can't be reached" in said
    assert "is the server running" in said


def test_another_scheme(url: str) -> None:
    assert failure(url.replace("http:", "https:"), *LOAD).startswith("antiphon: https://127.0.0.1")


@pytest.fixture
def mute() -> Iterator[str]:
    """Takes connections, says something that is not HTTP, and closes them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(b"220 mail.example.com ESMTP\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_protocol(mute: str) -> None:
    assert mute in failure(mute, *LOAD)


@pytest.mark.parametrize(
    ("model", "said"),
    [("failing", "a trial call failed"), ("half", "a trial call failed"), ("none", "--model")],
)
def test_a_model_that_does_not_answer(url: str, model: str, said: str) -> None:
    assert said in failure(url, "--model", model, *LOAD)


def test_a_server_that_answered_is_not_said_to_be_out_of_reach() -> None:
    for ending in (Ending.NOT_HTTP, Ending.CLOSED):
        with scripted_server(Script(models={"m": Behaviour(ending=ending)})) as server:
            said = failure(server.url, *LOAD)
        assert "a trial call failed" in said
        assert "can't be reached" not in said


def test_the_trial_has_no_longer_than_any_request() -> None:
    with scripted_server(Script(models={"m": Behaviour(ttft_s=50.0)})) as server:
        done = bench(server.url, *LOAD, "--timeout", "3s")
    assert done.returncode == 1
    *before, said = done.stderr.splitlines()
    assert "Trying one call…" in before
    assert "not at its end after 3 s" in said
    assert "--timeout" in said


def test_a_trace_that_is_scaled_down_is_said_to_be(url: str, tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace.jsonl", tmp_path / "run"
    row = {"timestamp": 0, "input_length": 512, "output_length": 64, "hash_ids": [0]}
    trace.write_text(json.dumps(row) + "\n")
    options = ("--warmup", "0s", *LAX, "-o", str(folder))
    done = bench(url, "--model", "good", "--trace", str(trace), *options)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "scaled down" in line]
    assert "prompts to 0.0625, outputs to 0.0625" in line
    assert line in json.loads((folder / "run.json").read_text())["notes"]


def test_several_models_and_none_named(url: str) -> None:
    assert "choose one (--model)" in failure(url, *LOAD)


def test_requests_that_all_fail_are_counted_and_exit_1(tmp_path: Path) -> None:
    """All but the trial, which comes first."""
    options = ("--timeout", "2s", "--requests", "4", "--warmup", "0s", "-o", str(tmp_path))
    with scripted_server(Script(models={"m": Behaviour(ttft_s=(0.0, *[30.0] * 9))})) as server:
        said = failure(server.url, *LOAD, *options)
    assert "all 4 requests failed, 4 of them as timeout" in said
    assert json.loads((tmp_path / "summary.json").read_text())["ok"] == 0


def test_calls_that_count_and_all_fail_exit_1(tmp_path: Path) -> None:
    """Three calls a second, a second apart, of which the first, in the warm-up, is served."""
    script = Script(models={"m": Behaviour(ttft_s=(0.0, 0.0, *[30.0] * 9))})
    with scripted_server(script) as server:
        said = failure(
            *(server.url, "--workload", "fixed:input=8,output=4", "--arrivals", "constant"),
            *("--rate", "1", "--requests", "3", "--warmup", "1s", "--timeout", "2s", *LAX),
            *("-o", str(tmp_path)),
        )
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["ok"] == 0
    assert f"all {summary['calls']} requests failed" in said


def test_nothing_after_the_warm_up_is_said_and_exits_1(url: str, tmp_path: Path) -> None:
    arguments = (url, "--model", "good", "--workload", "fixed:input=8,output=4", *LAX)
    load = ("--arrivals", "constant", "--rate", "40", "--requests", "1", "--warmup", "90%")
    said = failure(*arguments, *load, "-o", str(tmp_path))
    assert "no call was due after the warm-up" in said
    assert "--warmup 0%" in said
    assert json.loads((tmp_path / "summary.json").read_text())["overall"]["both"] is None


# Searches


def test_a_search_finds_the_knee_and_keeps_each_run(tmp_path: Path) -> None:
    """One slot of 10 ms serves 100 requests a second, and not one more.

    Requests come at equal gaps, so below that rate none waits and above it ever more do. Targets,
    tolerance and the bounds of this test leave room for a machine that is busy otherwise; how exact
    a search is is tested where time is an argument.
    """
    folder = tmp_path / "search"
    script = Script(models={"m": Behaviour(ttft_s=0.01)}, slots=1)
    with scripted_server(script) as server:
        done = bench(
            *(server.url, "--find-goodput", "--workload", "fixed:input=8,output=1"),
            *("--arrivals", "constant", "--rate", "40", "--max-rate", "320", "--tolerance", "0.5"),
            *("--duration", "2s", "--warmup", "0.4s", "--slo", "ttft=300ms", "-o", str(folder)),
        )
    assert done.returncode == 0, done.stderr
    search = json.loads((folder / "search.json").read_text())["goodput"]
    assert search["stopped"] == "found"
    assert 20 <= search["rate_per_s"] < 120
    assert search["rate_per_s"] < search["fails_at_per_s"] <= 160
    assert "Goodput is" in done.stdout
    runs = sorted(child for child in folder.iterdir() if child.is_dir())
    assert len(runs) == sum(probe["runs"] for probe in search["probes"])
    assert all({file.name for file in child.iterdir()} == FILES for child in runs)
    assert (folder / "report.html").exists()
    assert bench("report", str(folder)).returncode == 0


def test_how_tight_targets_may_be(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "scales"
    done = bench(
        *(url, "--model", "slow", "--find-slo-scale", "--scales", "0.01,100", *LOAD),
        *("--slo", "ttft=1s", "-o", str(folder)),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "search.json").read_text())["slo_scale"]
    assert found["tightest"]["value"] >= 0.2
    strict, lax = found["curve"]
    assert strict["attainment"]["met"] == 0
    assert lax["attainment"]["met"] == lax["attainment"]["calls"] > 0
