"""The same load by different tools: fixed prompts and lengths, at even times, streamed chats.

Each tool runs as a process of its own (the peers in their virtualenvs, ours by `run_load` in a
fresh interpreter) and is reduced to what it says of each request: when it was sent, and when the
first and the last token came. All numbers are then computed by one code.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environment import AIPERF, GUIDELLM, Peer, python_of

LONGEST_S = 900.0
OURS = "antiphon"
_NS, _MS = 1e-9, 1e-3
_SPARE = 8
"""Prompts that no request needs: GuideLLM takes one ahead."""


@dataclass(frozen=True, kw_only=True)
class SameLoad:
    """One request a prompt, each for exactly `max_tokens` tokens."""

    prompts: tuple[str, ...]
    max_tokens: int
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request as the tool saw it, on its own clock. `first_s`: its first token came."""

    sent_s: float
    first_s: float
    last_s: float
    tokens: int


@dataclass(frozen=True)
class ToolRun:
    """Whatever went well, and the CPU time that the tool took for all of it, its start included."""

    outcomes: tuple[Outcome, ...]
    cpu_s: float

    def ttfts(self) -> list[float]:
        return [one.first_s - one.sent_s for one in self.outcomes]

    def tpots(self) -> list[float]:
        return [(o.last_s - o.first_s) / (o.tokens - 1) for o in self.outcomes if o.tokens > 1]

    def tokens_per_s(self) -> float:
        """From when the first request was sent until the last token came."""
        begin = min(one.sent_s for one in self.outcomes)
        end = max(one.last_s for one in self.outcomes)
        return sum(one.tokens for one in self.outcomes) / (end - begin)


class Failed(Exception):
    """A tool did not come to its end, or nothing went well."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Who is put under load. `tokenizer`: a folder, as the peers insist on one."""

    url: str
    model: str
    tokenizer: Path


def run_tool(
    tool: str, load: SameLoad, target: Target, folder: Path, venvs: Path, cores: Sequence[int] = ()
) -> ToolRun:
    """Put `load` on `target` by this tool, its files in `folder`. Raises `Failed`."""
    folder.mkdir(parents=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    match tool:
        case AIPERF.name:
            outcomes = _aiperf(load, target, folder, _program(AIPERF, venvs, "aiperf"), cores)
        case GUIDELLM.name:
            outcomes = _guidellm(load, target, folder, _program(GUIDELLM, venvs, "guidellm"), cores)
        case _:
            outcomes = _ours(load, target, folder, cores)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not outcomes:
        raise Failed(f"{tool}: no request went well")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ToolRun(tuple(outcomes), cpu_s)


def _program(peer: Peer, venvs: Path, name: str) -> str:
    return str(python_of(peer, venvs).with_name(name))


def _run(command: Sequence[str], folder: Path, cores: Sequence[int]) -> None:
    # With HF_HUB_OFFLINE a folder is no tokenizer to AIPerf.
    env = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with (folder / "log").open("wb") as log:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=env,
                timeout=LONGEST_S,
                preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[0]} did not end in {LONGEST_S:g} s") from None
    if done.returncode:
        end = (folder / "log").read_text(errors="replace")[-2000:]
        raise Failed(f"{command[0]} ended with {done.returncode}:\n{end}")


def _write_rows(path: Path, load: SameLoad, text: str, length: str) -> None:
    rows = [*load.prompts, *load.prompts[:_SPARE]]
    lines = [json.dumps({text: prompt, length: load.max_tokens}) for prompt in rows]
    path.write_text("\n".join(lines) + "\n")


def _aiperf(
    load: SameLoad, target: Target, folder: Path, program: str, cores: Sequence[int]
) -> list[Outcome]:
    _write_rows(folder / "load.jsonl", load, "text", "output_length")
    command = [program, "profile", "--model", target.model, "--url", target.url]
    command += ["--endpoint-type", "chat", "--streaming", "--tokenizer", str(target.tokenizer)]
    command += ["--input-file", str(folder / "load.jsonl"), "--custom-dataset-type", "single_turn"]
    command += ["--dataset-sampling-strategy", "sequential", "--use-server-token-count"]
    command += ["--use-legacy-max-tokens", "--extra-inputs", "ignore_eos:true"]
    command += ["--extra-inputs", "temperature:0", "--request-count", str(len(load.prompts))]
    command += ["--request-rate", str(load.rate_per_s), "--request-rate-mode", "constant"]
    command += ["--output-artifact-dir", str(folder / "out"), "--ui", "none"]
    _run([*command, "--no-server-metrics", "--no-gpu-telemetry"], folder, cores)
    return list(_of_aiperf((folder / "out/profile_export.jsonl").read_text()))


def _of_aiperf(lines: str) -> Iterator[Outcome]:
    for line in lines.splitlines():
        record = json.loads(line)
        if record.get("error"):
            continue
        told: Mapping[str, Mapping[str, Any]] = record["metrics"]
        sent_s = record["metadata"]["request_start_ns"] * _NS
        first_s = sent_s + told["time_to_first_token"]["value"] * _MS
        tokens = told["output_sequence_length"]["value"]
        last_s = first_s + told["inter_token_latency"]["value"] * _MS * (tokens - 1)
        yield Outcome(sent_s, first_s, last_s, tokens)


def _guidellm(
    load: SameLoad, target: Target, folder: Path, program: str, cores: Sequence[int]
) -> list[Outcome]:
    _write_rows(folder / "load.jsonl", load, "prompt", "output_tokens_count")
    backend = f"kind=openai_http,target={target.url},model={target.model}"
    backend += ",extras.body.ignore_eos=true,extras.body.temperature=0"
    command = [program, "run", "--backend", backend, "--disable-console"]
    command += ["--profile", f"kind=constant,rate={load.rate_per_s:g}"]
    # At low rates it leaves out the last.
    command += ["--constraint", f"kind=max_requests,count={len(load.prompts) + 1}"]
    command += ["--data", f"kind=json_file,path={folder / 'load.jsonl'}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={target.tokenizer}"]
    _run([*command, "--output", f"kind=json,path={folder / 'out.json'}"], folder, cores)
    [benchmark] = json.loads((folder / "out.json").read_text())["benchmarks"]
    told = map(_of_guidellm, benchmark["requests"]["successful"] or ())
    return sorted(told, key=lambda outcome: outcome.sent_s)[: len(load.prompts)]


def _of_guidellm(request: Mapping[str, Any]) -> Outcome:
    times = request["info"]["timings"]
    return Outcome(
        times["request_start"],
        times["first_token_iteration"],
        times["last_token_iteration"],
        request["output_metrics"]["text_tokens"],
    )


def _ours(load: SameLoad, target: Target, folder: Path, cores: Sequence[int]) -> list[Outcome]:
    told = {"url": target.url, "model": target.model, "max_tokens": load.max_tokens}
    told |= {"rate_per_s": load.rate_per_s, "prompts": load.prompts}
    (folder / "load.json").write_text(json.dumps(told))
    script = str(Path(__file__).with_name("own_load.py"))
    _run(
        [sys.executable, script, str(folder / "load.json"), str(folder / "out.json")], folder, cores
    )
    return [Outcome(*row) for row in json.loads((folder / "out.json").read_text())]
