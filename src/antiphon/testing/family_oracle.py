"""How far each family's logits are from those of `transformers`: `docs/reference/models.md`.

    .venv/bin/python -m antiphon.testing.family_oracle      # prints the page's table

A tiny random checkpoint of each family is written as a Hugging Face folder and as GGUF files. The
oracle loads the folder; the engine loads each of them, computes all positions in chunks, and is
compared at every one. Contexts go past every window, and past the context that RoPE was stretched
from. The oracle has the values that the file holds, rounded as they are.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from antiphon.checkpoint import (
    FrequencyFactors,
    Llama3Scaling,
    ModelSpec,
    StorageType,
    open_checkpoint,
)
from antiphon.checkpoint.hf_config import Arrays
from antiphon.engine import KvMemory, Model, PagedKv, layout_of, load_llama
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.rope import frequencies

from .ggml_quants import rounded
from .tiny_families import FAMILY_SPECS, widened
from .tiny_models import quantised, random_tensors, write_gguf, write_hf_folder

DTYPES = ("fp32", "int8")
PLAIN_FORMATS = ("safetensors F32", "safetensors BF16, 2 shards", "GGUF F32", "GGUF Q8_0")
WIDE_FORMATS = ("GGUF Q4_K", "GGUF Q5_K", "GGUF Q6_K", "GGUF Q5_0", "GGUF Q5_1")
"""Of models with rows of 256 elements (`widened`)."""
_PAGE_TOKENS = 16
_CHUNK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """`error`: largest difference of a logit, anywhere; `agreement`: share of equal argmaxes.

    `spread`: standard deviation of the oracle's logits, for scale.
    """

    error: float
    agreement: float
    spread: float


def distances(name: str, folder: Path, forms: Sequence[str]) -> Iterator[tuple[str, str, Distance]]:
    """(format, dtype, distance) of the family `name`; writes its files to `folder`."""
    for form in forms:
        spec = FAMILY_SPECS[name] if form in PLAIN_FORMATS else widened(FAMILY_SPECS[name])
        tensors, tokens = random_tensors(spec, seed=1), random_tokens(spec)
        path = _written(form, folder, spec, tensors)
        theirs = path if path.is_dir() else _unpacked(form, folder, spec, tensors)
        expected = oracle_logits(theirs, tokens)
        checkpoint = open_checkpoint(path)
        for dtype in DTYPES:
            model = load_llama(checkpoint, dtype=dtype, cache_dir=None)
            yield form, dtype, distance(engine_logits(model, tokens), expected)


def random_tokens(spec: ModelSpec) -> list[int]:
    """As many as the context holds."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(spec.vocab_size, (spec.context_len,), generator=generator).tolist()


def oracle_of(folder: Path) -> PreTrainedModel:
    """transformers' model of a folder: float32, eager attention, every tensor used."""
    logging.disable_progress_bar()
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    model, report = loaded
    unused = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
    if unused:
        raise ValueError(f"{folder}: transformers doesn't read it whole: {unused}")
    return model.eval()


def oracle_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    """transformers' logits float32 [tokens, vocabulary], in one pass."""
    with torch.inference_mode():
        return oracle_of(folder)(torch.tensor([tokens]), use_cache=False).logits[0]


def engine_logits(model: Model, tokens: list[int], memory: PagedKv | None = None) -> torch.Tensor:
    """The engine's logits float32 [tokens, vocabulary], computed in chunks over pages of `memory`,
    without it fp32."""
    pages = -(-len(tokens) // _PAGE_TOKENS)
    memory = memory or KvMemory(layout_of(model.spec, _PAGE_TOKENS), pages)
    layout, table = memory.layout, PageTable()
    table.extend(0, list(range(pages))[::-1])
    found = []
    for start in range(0, len(tokens), _CHUNK):
        chunk = tokens[start : start + _CHUNK]
        run = Run(tokens=chunk, start=start, table=table, sampled=True)
        batch = replace(Batch.of([run], layout), sampled=np.arange(len(chunk)))
        found.append(model.forward(batch, memory).clone())
    return torch.cat(found)


def distance(found: torch.Tensor, expected: torch.Tensor) -> Distance:
    """How far logits are from the oracle's."""
    same = found.argmax(1) == expected.argmax(1)
    return Distance(
        error=(found - expected).abs().max().item(),
        agreement=same.float().mean().item(),
        spread=expected.std().item(),
    )


def gguf_spec(spec: ModelSpec) -> ModelSpec:
    """The same model as a converter writes it to a GGUF file."""
    if not isinstance(spec.rope_scaling, Llama3Scaling):
        return spec
    factors = frequencies(replace(spec, rope_scaling=None)) / frequencies(spec)
    return replace(spec, rope_scaling=FrequencyFactors(factors=tuple(factors.tolist())))


def _written(form: str, folder: Path, spec: ModelSpec, tensors: Arrays) -> Path:
    kind, _, rest = form.partition(" ")
    storage = StorageType(rest.partition(",")[0])
    if kind == "GGUF":
        return write_gguf(folder / f"{form}.gguf", gguf_spec(spec), tensors, storage=storage)
    return write_hf_folder(
        folder / form, spec, tensors, storage=storage, shards=2 if "shards" in form else 1
    )


def _unpacked(form: str, folder: Path, spec: ModelSpec, tensors: Arrays) -> Path:
    """A folder that holds in float32 what the GGUF file holds."""
    storage = StorageType(form.removeprefix("GGUF "))
    values = {
        name: rounded(array, storage) if quantised(name, array, storage) else array
        for name, array in tensors.items()
    }
    return write_hf_folder(folder / f"oracle {form}", spec, values)


def rows() -> Iterator[str]:
    """The lines of the page's table."""
    kinds = " | ".join(f"{dtype}: largest error | equal argmax" for dtype in DTYPES)
    yield f"| family | file | spread | {kinds} |"
    yield "|---" * (3 + 2 * len(DTYPES)) + "|"
    for name in FAMILY_SPECS:
        with tempfile.TemporaryDirectory() as folder:
            cells: dict[str, list[str]] = {}
            for form, _, found in distances(name, Path(folder), (*PLAIN_FORMATS, *WIDE_FORMATS)):
                line = cells.setdefault(form, [name, form, f"{found.spread:.2f}"])
                line += [f"{found.error:.1e}", f"{found.agreement:.1%}"]
        yield from (f"| {' | '.join(line)} |" for line in cells.values())


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
