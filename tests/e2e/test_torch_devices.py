"""Processes whose KV lies on a torch device: prefill and decode apart, the store, and no GPU."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from completions import ask_all
from e2e_process import SHAPES, Served, antiphon, at_rest, joined
from test_same_text import bodies

TIGHT = ("--dtype", "bf16")
PROMPTS = [
    [3 + (number * 37 + at * 11) % 250 for at in range(length)]
    for number, length in enumerate((1, 17, 130, 513))
]


def test_split_over_processes_a_device_says_the_same(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """bf16 is computed by torch in pages of its own; what decodes has them from shared memory."""
    asked = bodies("tiny", PROMPTS, max_tokens=6)
    alone = serve(*TIGHT, *SHAPES["1M"])
    expected = ask_all(alone, asked)
    assert alone.stop() == 0
    file = tmp_path / "cluster.toml"
    file.write_text("[router]\ntpot_s = 0.0001\n")
    split = serve(*TIGHT, *SHAPES["1P1D"], "--config", str(file))
    split.until(joined)
    assert ask_all(split, asked) == expected
    metrics = split.until_metrics(at_rest)
    assert metrics("antiphon_offers_total") == metrics("antiphon_pulls_total") > 0
    assert metrics("antiphon_recomputed_tokens_total") == metrics("antiphon_retries_total") == 0
    assert metrics("antiphon_pulled_tokens_total") > 400
    assert split.stop() == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
@pytest.mark.parametrize("command", ["serve", "profile"])
def test_without_cuda_one_line_says_what_torch_found(tiny: Path, command: str) -> None:
    done = subprocess.run(
        antiphon(command, str(tiny), "--device", "cuda:3", "--kv-memory", "8MiB"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "engine.device = cuda:3 (--device): torch" in done.stderr
    assert "--device cpu" in done.stderr
    assert "Traceback" not in done.stderr
