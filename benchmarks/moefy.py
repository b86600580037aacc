"""What a cut model loses with fewer experts active: SmolLM2 in 8 experts, against chance.

    python benchmarks/moefy.py                  # minutes; keeps benchmarks/results/moefy.json
    python benchmarks/moefy.py --text FILE

`centroid` is what `antiphon models moefy` writes. `chance` has neurons dealt out at random and a
random router: the same arithmetic, without knowing anything. All in fp32, against the dense model.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from support import result

import antiphon.moefy.mixture_folder as mixture_folder
from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.cli.models_check import read_text, windows
from antiphon.engine import compare, load_llama
from antiphon.moefy import ExpertSplit, moefy, split_mlp
from antiphon.text import Tokenizer

Split = Callable[[torch.Tensor, torch.Tensor, int, int], ExpertSplit]


def by_chance(seed: int) -> Split:
    chance = np.random.default_rng(seed)

    def split(gate: torch.Tensor, gain: torch.Tensor, count: int, active: int) -> ExpertSplit:
        neurons = torch.from_numpy(chance.permutation(len(gate)).reshape(count, -1))
        router = torch.from_numpy(chance.normal(0, 1e-4, (count, gate.shape[1])).astype(np.float32))
        return ExpertSplit(router=router, neurons=neurons, down_scale=float(active))

    return split


@contextmanager
def cut_by(split: Split) -> Iterator[None]:
    mixture_folder.split_mlp = split
    try:
        yield
    finally:
        mixture_folder.split_mlp = split_mlp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, nargs="+", default=[8, 6, 4])
    parser.add_argument("--positions", type=int, default=1024)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--draws", type=int, default=2, help="of chance")
    options = parser.parse_args()
    checkpoint = open_checkpoint(resolve(options.model))
    tokens = Tokenizer.load(checkpoint.tokenizer).encode(
        read_text(options.text)[: 16 * options.positions]
    )
    prompts = windows(tokens[: options.positions], options.window)
    reference = load_llama(checkpoint, dtype="fp32", cache_dir=None)
    rows = []
    for active in options.top_k:
        draws = [(f"chance {seed}", by_chance(seed)) for seed in range(options.draws)]
        for name, split in [("centroid", split_mlp), *draws]:
            with tempfile.TemporaryDirectory() as folder, cut_by(split):
                cut = Path(folder) / "cut"
                moefy(checkpoint, cut, experts=options.experts, active=active)
                candidate = load_llama(open_checkpoint(cut), dtype="fp32", cache_dir=None)
                agreement = compare(reference, candidate, prompts)
            print(f"{active} of {options.experts} active, {name}: {agreement}")
            rows.append({"active": active, "router": name, **asdict(agreement)})
    measured = {"model": options.model, "experts": options.experts, "rows": rows}
    print(result.write("moefy", measured))


if __name__ == "__main__":
    main()
