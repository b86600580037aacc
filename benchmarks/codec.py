"""KV as few bytes: size, quality and speed of each level, on a real model and real text.

    .venv/bin/python benchmarks/codec.py                        profile, levels, lines: 10 minutes
    .venv/bin/python benchmarks/codec.py --parts variants       what each part of the codec brings
    .venv/bin/python benchmarks/codec.py --contexts 4 --prompts 8 --keep nothing  to see it work

The profile is made of Python's own reference (`pydoc_data.topics`). Contexts are of other texts:
English news (gensim's Lee corpus, see `quality.py`) and this project's documentation, by turns.
Each is prefilled by the engine; its KV goes through a level; the 64 tokens of the text after it are
then fed with the decoded KV and with the exact one. KL: mean divergence of what is said next;
top-1: share of tokens whose likeliest is the same. Lines: plain int8 and int4 (a scale for each
head and token), and the codec that LMCache ships (`support/oss_cachegen.py`), on the same caches.

Goals: 2.5× smaller than 8 bits an element at 95 % top-1 or more, 3.5× at 0.05 nats or less;
int8 and int4 at 10⁹ elements a second and core or more, entropy-coded levels at 6·10⁷.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quality import corpus
from support import result
from support.oss_cachegen import OSS_LEVELS, oss_codec, plain_codec

from antiphon.checkpoint import Checkpoint, open_checkpoint, resolve
from antiphon.cli.kv_codec import read_texts
from antiphon.core.arithmetic import dtype_of
from antiphon.engine import kv_dtype_of, load_llama, load_weights, numerics_id
from antiphon.engine.kv_gradients import KvGradients, KvSample
from antiphon.live.kv_levels import LevelTrial, TrialSizes, contexts_of, try_level
from antiphon.live.kv_profiler import Fit, SampleSizes, fitted, windows_of
from antiphon.live.kv_trial import KvTrial
from antiphon.store.codec import (
    INT4,
    INT8,
    LOSSLESS,
    RAW,
    KvProfile,
    Moments,
    Transform,
    entropy,
    read_kv_profile,
    transform_of,
)
from antiphon.text import Tokenizer

DOCS = Path(__file__).parents[1] / "docs"
CACHE = Path("~/.cache/antiphon").expanduser()
KEPT = ("values", "gradients")
VARIANT_BITS = (3.2, 2.25)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="antiphon-codec-") as scratch:
        options.scratch = options.scratch or Path(scratch)
        run(options)


def run(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(resolve(options.model))
    tokenizer = Tokenizer.load(checkpoint.tokenizer)
    samples = Samples(checkpoint, tokenizer, options)
    profile = read_kv_profile(options.profile) if options.profile else samples.profile(Fit())
    model = load_llama(checkpoint, dtype=dtype_of(options.quantize), cache_dir=CACHE)
    kv_dtype = kv_dtype_of("auto", dtype_of(options.quantize))
    tried = KvTrial(model, kv_dtype, contexts(tokenizer, options), 64)
    found: dict[str, list[dict[str, Any]]] = {}
    if "levels" in options.parts:
        found["levels"] = [shown(try_level(tried, one, profile)) for one in levels_of(profile)]
    if "lines" in options.parts:
        lines = (tried.run(name, codec) for name, codec in line_codecs())
        found["lines"] = [shown(LevelTrial(trial=line, speed=None)) for line in lines]
    if "variants" in options.parts:
        found["variants"] = [
            shown(replace(one, trial=replace(one.trial, name=f"{name}, {bits}")))
            for name, fit, transform in variant_fits()
            for bits, one in variant_trials(tried, samples.profile(fit, transform))
        ]
    if options.keep == "all":
        setup = {
            "model": options.model,
            "numerics": numerics_id(dtype_of(options.quantize), kv_dtype),
            "profile": "pydoc_data.topics",
            "texts": "gensim's Lee corpus, docs/, by turns",
            **{name: getattr(options, name) for name in ("contexts", "tokens", "prompts")},
            "prompt_tokens": options.prompt_tokens,
            "speeds": "CPU time on a loaded machine" if options.loaded else "CPU time",
        }
        kept = with_earlier(options.name, {"setup": setup} | found)
        print(result.write(options.name, kept))
        if "levels" in kept and "lines" in kept:
            print(plot(kept, result.RESULTS / f"{options.name}.svg"))


class Samples:
    """KV and gradients of the text that profiles are made of, on disk once they are computed."""

    def __init__(
        self, checkpoint: Checkpoint, tokenizer: Tokenizer, options: argparse.Namespace
    ) -> None:
        self._checkpoint = checkpoint
        self._sizes = SampleSizes(prompts=options.prompts, prompt_tokens=options.prompt_tokens)
        self._windows = windows_of(tokenizer.encode(read_texts(None)), self._sizes)
        self._folder = options.scratch

    def profile(
        self, fit: Fit, transform: Callable[[Moments], Transform] = transform_of
    ) -> KvProfile:
        """Fitted to them."""
        name, count = self._checkpoint.name, len(self._windows)
        seen = self._all()
        return fitted(self._checkpoint, name, seen, count, self._sizes, fit, transform=transform)

    def _all(self) -> Iterator[KvSample]:
        model = None
        for number, window in enumerate(self._windows):
            files = [self._folder / f"{number}.{part}.npy" for part in KEPT]
            if not all(file.exists() for file in files):
                weights = load_weights(self._checkpoint, cache_dir=CACHE)
                model = model or KvGradients(self._checkpoint.spec, weights)
                ends = self._sizes.prompt_tokens
                sample = model.sample(window[:ends], window[ends:], number)
                for file, part in zip(files, KEPT, strict=True):
                    np.save(file, getattr(sample, part))
            values, gradients = map(np.load, files)
            yield KvSample(values=values, gradients=gradients)


def contexts(tokenizer: Tokenizer, options: argparse.Namespace) -> list[Sequence[int]]:
    """News and documentation, by turns."""
    pages = sorted(DOCS.rglob("*.md"))
    both = corpus(), "\n\n".join(page.read_text() for page in pages)
    half = TrialSizes(contexts=-(-options.contexts // 2), tokens=options.tokens)
    found = [contexts_of(tokenizer.encode(text), half) for text in both]
    turns = [one for pair in zip(*found, strict=True) for one in pair]
    return turns[: options.contexts]


def levels_of(profile: KvProfile) -> list[Any]:
    known = range(1, len(profile.levels) + 1)
    return [RAW, LOSSLESS, INT8, INT4, *map(entropy, known)]


def line_codecs() -> list[tuple[str, Callable[[Sequence[np.ndarray]], float]]]:
    """Others, on blocks of whatever numbers they have."""

    def in_floats(codec: Callable[[Sequence[np.ndarray]], float]) -> Any:
        def through(blocks: Sequence[np.ndarray]) -> float:
            wide = [floats_of(block) for block in blocks]
            taken = codec(wide)
            for block, found in zip(blocks, wide, strict=True):
                block[...] = found if block.dtype == np.float32 else bf16_of(found)
            return taken

        return through

    plain = [(f"plain int{n}", in_floats(lambda b, n=n: plain_codec(b, n))) for n in (8, 4)]
    oss = [(bins.name, in_floats(lambda b, bins=bins: oss_codec(b, bins))) for bins in OSS_LEVELS]
    return plain + oss


def floats_of(block: np.ndarray) -> np.ndarray:
    if block.dtype == np.float32:
        return block.copy()
    return (block.astype(np.uint32) << 16).view(np.float32)


def bf16_of(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    return ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).astype(np.uint16)


# ── variants ─────────────────────────────────────────────────────────────────────────────────────


def variant_fits() -> list[tuple[str, Fit, Callable[[Moments], Transform]]]:
    """The codec without one of its parts, or with another choice, by what is left."""
    usual = Fit(bits=VARIANT_BITS)
    return [
        ("as it is", usual, transform_of),
        ("keys after RoPE", replace(usual, before_rope=False), transform_of),
        ("channels, not directions", usual, by_channel),
        ("no curvature (one step for all)", usual, without_curvature),
        ("curvature of layers only", usual, with_layer_curvature),
        ("nothing of the token before", usual, without_prediction),
        ("rounded to nearest", replace(usual, rounding=0.5), transform_of),
        ("no token kept", replace(usual, kept_tokens=0), transform_of),
        ("4 tokens kept", replace(usual, kept_tokens=4), transform_of),
        *[
            (f"sections of {n} layers", replace(usual, section_layers=n), transform_of)
            for n in (1, 3, 5)
        ],
        *[
            (f"floor {floor}", usual, lambda sums, floor=floor: transform_of(sums, floor))
            for floor in (0.002, 0.1)
        ],
    ]


def variant_trials(tried: KvTrial, profile: KvProfile) -> Iterator[tuple[float, LevelTrial]]:
    for number, bits in enumerate(VARIANT_BITS, 1):
        yield bits, try_level(tried, entropy(number), profile, speed=False)


def by_channel(sums: Moments) -> Transform:
    """Each channel by itself: mean, spread and curvature, no directions."""
    return transform_of(
        replace(
            sums,
            products=diagonal_about_mean(sums),
            neighbours=diagonal_about_mean(sums, sums.neighbours),
            curvature=np.diag(np.diag(sums.curvature)),
        )
    )


def diagonal_about_mean(sums: Moments, products: np.ndarray | None = None) -> np.ndarray:
    """Sums of products whose covariance has a diagonal only."""
    mean = np.outer(sums.total, sums.total) / sums.tokens
    products = sums.products if products is None else products
    return mean + np.diag(np.diag(products - mean))


def without_curvature(sums: Moments) -> Transform:
    """An error is as bad in any direction of any layer, relative to nothing."""
    size = len(sums.total)
    return transform_of(replace(sums, curvature=np.eye(size) * sums.tokens))


def with_layer_curvature(sums: Moments) -> Transform:
    """What a layer's keys or values matter as a whole, no direction more than another."""
    size = len(sums.total)
    return transform_of(replace(sums, curvature=np.eye(size) * np.trace(sums.curvature) / size))


def without_prediction(sums: Moments) -> Transform:
    found = transform_of(sums)
    return replace(found, following=np.zeros_like(found.following))


# ── results ──────────────────────────────────────────────────────────────────────────────────────


def shown(one: LevelTrial) -> dict[str, Any]:
    """Print a line; what is kept of it."""
    trial, speed = one.trial, one.speed
    rates = asdict(speed) if speed else {}
    more = "".join(f"{rate / 1e6:8.0f}" for rate in rates.values())
    print(
        f"{trial.name:<36}{trial.bits:6.2f} bits {8 / trial.bits:5.2f}x  "
        f"KL {trial.divergence:.5f}  top-1 {trial.top1:6.1%}  "
        f"perplexity {trial.perplexity / trial.exact_perplexity - 1:+.2%}{more}",
        flush=True,
    )
    return asdict(trial) | rates


def with_earlier(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """With the parts that an earlier run with the same set-up has measured."""
    path = result.RESULTS / f"{name}.json"
    earlier = json.loads(path.read_text())["results"] if path.exists() else {}
    return earlier | found if earlier.get("setup") == found["setup"] else found


def plot(kept: Mapping[str, Any], path: Path) -> Path:
    """Size against divergence, and against top-1 agreement."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    lossy = [one for one in kept["levels"] if one["divergence"] > 0]
    coded = [one for one in lossy if one["name"].startswith("entropy")]
    oss = [one for one in kept["lines"] if one["name"].startswith("OSS")]
    groups = [
        ("entropy-1 …", coded, "o-"),
        ("int8, int4", [one for one in lossy if one not in coded], "s"),
        ("plain int8, int4", [one for one in kept["lines"] if one not in oss], "x"),
        ("OSS CacheGen", oss, "^--"),
    ]
    for name, group, style in groups:
        bits = [one["bits"] for one in group]
        left.plot(bits, [one["divergence"] for one in group], style, label=name)
        right.plot(bits, [100 * one["top1"] for one in group], style, label=name)
    left.set_yscale("log")
    left.axhline(0.05, color="grey", lw=0.7)
    left.axvline(8 / 3.5, color="grey", lw=0.7)
    right.axhline(95, color="grey", lw=0.7)
    right.axvline(8 / 2.5, color="grey", lw=0.7)
    left.set_ylabel("KL of the next 64 tokens (nats)")
    right.set_ylabel("same likeliest token (%)")
    for axis in (left, right):
        axis.set_xlabel("bits an element (grey: goals)")
        axis.legend(fontsize=8)
    figure.savefig(path)
    return path


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--quantize", default="int8", help="the weights: int8, or none (fp32)")
    parser.add_argument("--contexts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=1024, help="of each context")
    parser.add_argument("--prompts", type=int, default=24, help="that the profile is made of")
    parser.add_argument("--prompt-tokens", type=int, default=1024, help="of each of them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--parts",
        nargs="+",
        default=["levels", "lines"],
        choices=("levels", "lines", "variants"),
        help="what is measured; others stay as an earlier run with the same set-up left them",
    )
    parser.add_argument("--profile", type=Path, help="one that was made before")
    parser.add_argument("--loaded", action="store_true", help="others use the machine: say so")
    parser.add_argument("--scratch", type=Path, help="where samples are kept, for another run")
    parser.add_argument("--keep", choices=("all", "nothing"), default="all")
    parser.add_argument("--name", default="codec", help="of the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
