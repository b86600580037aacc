"""What `--quantize` costs and saves: size, speed and quality of each choice, family by family.

    python benchmarks/quantize.py               # SmolLM2, also in 8 experts; a tiny model a family
    python benchmarks/quantize.py --only smollm2-135m
    python benchmarks/quantize.py --table       # the page's table again, from what was kept

Sizes are those of `antiphon models inspect`, KL and top-1 those of `antiphon models check` on the
documentation that every Python has, in both with the KV type that `kv.dtype = "auto"` gives. Speed
is `antiphon.LLM` on one core: a prompt of 512 tokens (a tiny model: 128), and 64 tokens of one
sequence after it; medians. Tiny models have random weights: their sizes and speeds mean nothing,
and of quality they say that nothing is broken, no more. `none` is what KL is counted from: 0. On a
busy machine (or with --loaded) no speed is measured. Kept in benchmarks/results/quantize.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from support import result

from antiphon import LLM
from antiphon.core.arithmetic import QUANTIZATIONS
from antiphon.testing.tiny_families import FAMILY_SPECS, widened
from antiphon.testing.tiny_models import random_tensors, write_hf_folder
from antiphon.types import SamplingParams

REAL = "smollm2-135m"
CUT = "smollm2-135m in 8 experts"
QUIET_LOAD = 1.3
DECODED = 64


def main() -> None:
    options = _options()
    kept = result.RESULTS / "quantize.json"
    if options.table:
        print("\n".join(table(json.loads(kept.read_text())["results"]["rows"])))
        return
    options.loaded |= os.getloadavg()[0] > QUIET_LOAD
    rows = []
    with tempfile.TemporaryDirectory(prefix="antiphon-quantize-") as scratch:
        for name, model, real in models(Path(scratch), options.only):
            for row in measured(name, model, options, real=real):
                print(json.dumps(row), file=sys.stderr)
                rows.append(row)
    print("\n".join(table(rows)))
    if not options.only:
        setup = {"positions": options.positions, "rounds": options.rounds}
        quiet = not options.loaded
        print(result.write("quantize", {"quiet": quiet, "setup": setup, "rows": rows}))


def models(scratch: Path, only: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """(name, what `antiphon` is given, whether its weights mean something)."""
    if not only or REAL in only:
        yield REAL, REAL, True
    if not only or CUT in only:
        antiphon("models", "moefy", REAL, str(scratch / "cut"), "--experts", "8", "--top-k", "8")
        yield CUT, str(scratch / "cut"), True
    for name, narrow in FAMILY_SPECS.items():
        if only and name not in only:
            continue
        spec = widened(narrow)
        folder = write_hf_folder(scratch / name, spec, random_tensors(spec, seed=1))
        yield f"tiny {name}", str(folder), False


def measured(
    name: str, model: str, options: argparse.Namespace, *, real: bool
) -> Iterator[dict[str, Any]]:
    told = json.loads(antiphon("models", "inspect", model, "--json"))
    of_kernels = (one for one in told["fits"]["choices"] if one["dtype"] in (None, "fp32"))
    sizes = {choice["quantize"]: choice for choice in of_kernels}
    for quantize in QUANTIZATIONS:
        yield {
            "model": name,
            "architecture": told["architecture"],
            "quantize": quantize,
            "file_bytes": sum(row["bytes"] for row in told["tensors"]),
            "weight_bytes": sizes[quantize]["weight_bytes"],
            "kv_dtype": sizes[quantize]["kv_dtype"],
            "kv_bytes_per_token": sizes[quantize]["kv_bytes_per_token"],
            **quality(model, quantize, options.positions, real=real),
            **({} if options.loaded else speed(model, quantize, told, options.rounds, real=real)),
        }


def quality(model: str, quantize: str, positions: int, *, real: bool) -> dict[str, float]:
    """Against the model in fp32."""
    if quantize == "none":
        return {"kl_nats": 0.0, "top1": 1.0, "perplexity_change": 0.0}
    window, positions = (1024, positions) if real else (256, min(positions, 2048))
    asked = ("models", "check", model, "--quantize", quantize, "--json", "--cores", "0")
    size = ("--window", str(window), "--positions", str(positions))
    found = json.loads(antiphon(*asked, *size))
    return {
        "positions": found["positions"],
        "kl_nats": found["mean_kl_nats"],
        "top1": found["top1"],
        "perplexity_change": found["perplexity_change"],
    }


def speed(
    model: str, quantize: str, told: dict[str, Any], rounds: int, *, real: bool
) -> dict[str, float]:
    """Tokens a second of one sequence: of its prompt, and after it."""
    prompt = 512 if real else 128
    prompts = iter(range(10**6))
    config = {"kv": {"prefix_cache": False}}
    with LLM(model, config=config, quantize=quantize, kv_memory="256MiB", cores=(0,)) as llm:

        def seconds(tokens: int) -> float:
            at, vocabulary = next(prompts), told["tokenizer"]["vocab_size"]
            ids = [(7919 * at + 31 * place + 3) % vocabulary for place in range(prompt)]
            asked = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, seed=1)
            started = time.perf_counter()
            llm.generate(ids, asked, progress=False)
            return time.perf_counter() - started

        seconds(2)
        first = [seconds(1) for _ in range(rounds)]
        whole = [seconds(1 + DECODED) for _ in range(rounds)]
    return {
        "prompt_tokens_per_s": prompt / median(first),
        "decode_tokens_per_s": DECODED / (median(whole) - median(first)),
    }


def antiphon(*words: str) -> str:
    command = [sys.executable, "-m", "antiphon", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """As it stands in docs/reference/models.md: a line for each model."""
    yield (
        "| model | file | in memory: `int8`, `none` | KV a token: bf16, fp32 | prompt, decode in "
        "`int8` (tokens/s) | in `none` | KL of `int8` (nats) | top-1 of `int8` |"
    )
    yield "|---" * 8 + "|"
    for name in dict.fromkeys(row["model"] for row in rows):
        of = {row["quantize"]: row for row in rows if row["model"] == name}
        both = [of[quantize] for quantize in QUANTIZATIONS]
        digits = 1 if name.startswith("tiny") else 0
        cells = (
            name,
            f"{both[0]['file_bytes'] / 1e6:,.{digits}f} MB",
            ", ".join(f"{row['weight_bytes'] / 1e6:,.{digits}f}" for row in both) + " MB",
            ", ".join(f"{row['kv_bytes_per_token'] / 1e3:,.1f}" for row in both) + " kB",
            *map(_pace, both),
            f"{both[0]['kl_nats']:.4f}",
            f"{100 * both[0]['top1']:.1f} %",
        )
        yield f"| {' | '.join(cells)} |"


def _pace(row: dict[str, Any]) -> str:
    if row["model"].startswith("tiny"):
        return "–"
    if "decode_tokens_per_s" not in row:
        return "not measured"
    return f"{row['prompt_tokens_per_s']:,.0f}, {row['decode_tokens_per_s']:,.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="MODEL")
    parser.add_argument("--positions", type=int, default=8192, help="of the text")
    parser.add_argument("--rounds", type=int, default=5, help="whose median is told")
    parser.add_argument("--loaded", action="store_true", help="the machine is busy: no speeds")
    parser.add_argument("--table", action="store_true", help="print what was kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
