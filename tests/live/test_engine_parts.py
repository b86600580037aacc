"""Layers with windows, on the processor's kernels and on a torch device."""

from pathlib import Path

import pytest

from antiphon.checkpoint import open_checkpoint
from antiphon.core.config import build
from antiphon.core.kv.lineage import lineage_in
from antiphon.engine import DeviceKv
from antiphon.live.engine_parts import EngineParts, load_parts
from antiphon.live.loaded_engine import load_engine
from antiphon.llm import LLM
from antiphon.testing.tiny_families import FAMILY_SPECS
from antiphon.testing.tiny_models import random_tensors, write_hf_folder
from antiphon.types import Config, SamplingParams

WINDOWED = pytest.mark.parametrize("family", ["gemma3", "mistral, window"])


def written(folder: Path, family: str) -> Path:
    spec = FAMILY_SPECS[family]
    write_hf_folder(folder / "tiny", spec, random_tensors(spec, seed=1))
    return folder / "tiny"


def config_of(folder: Path, level: str = "lossless", **model: str) -> Config:
    values = {
        "model": {"name": str(folder), **model},
        "kv": {"memory_bytes": "2MiB"},
        "engine": {"cache_dir": str(folder.parent / "cache")},
        "store_pool": {"level": level},
    }
    return build(values)


def parts_of(folder: Path, **model: str) -> EngineParts:
    return load_parts(open_checkpoint(folder), config_of(folder, **model), 256, 0, shares_kv=True)


@WINDOWED
def test_windows_have_pages_of_their_own_wherever_a_model_computes(
    tmp_path: Path, family: str
) -> None:
    folder = written(tmp_path, family)
    kernels, device = parts_of(folder, quantize="none"), parts_of(folder, dtype="bf16")
    assert any(group.window for group in kernels.memory.layout.groups)
    assert isinstance(device.memory, DeviceKv)
    assert device.memory.layout.groups == kernels.memory.layout.groups
    for parts in (kernels, device):
        assert parts.region is not None
        layout = parts.memory.layout
        assert parts.region.shape.entry_pages == layout.entry_pages
        assert sum(group.pages for group in layout.groups) == layout.entry_pages
        parts.region.close()


@WINDOWED
def test_far_behind_every_window_a_device_says_the_same_at_any_page_size(
    tmp_path: Path, family: str
) -> None:
    folder = str(written(tmp_path, family))
    prompts = [[3 + (at * 31 + start) % 90 for at in range(100)] for start in (0, 7)]
    sampling = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    said = []
    for page_tokens in (4, 16):
        kv = {"kv": {"page_tokens": page_tokens}}
        with LLM(folder, dtype="bf16", config=kv, kv_memory="4MiB") as llm:
            results = llm.generate(prompts, sampling, progress=False)
            said.append([result.outputs[0].token_ids for result in results])
    assert said[0] == said[1]
    assert [len(one) for one in said[0]] == [60, 60]
    assert said[0][0] != said[0][1]


def test_a_lossy_pool_gives_a_device_a_lineage_too(tmp_path: Path) -> None:
    folder = written(tmp_path, "llama")
    names = []
    for level in ("lossless", "int8"):
        config = config_of(folder, level, dtype="bf16")
        loaded = load_engine(open_checkpoint(folder), config, lambda line: None)
        names.append(loaded.info.numerics)
    assert not lineage_in(names[0])
    assert lineage_in(names[1])
    assert names[1].startswith(names[0])
