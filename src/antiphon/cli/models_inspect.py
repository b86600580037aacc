"""`antiphon models inspect`: what a model is, from its files' headers, and what fits here."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.core.arithmetic import TORCH_DTYPES, dtype_of
from antiphon.core.number_text import number_text, plural

from .kv_cost import bytes_text

if TYPE_CHECKING:
    from antiphon.checkpoint import Checkpoint, ModelSpec

_CLASSES = (
    ("experts", (".mlp.experts.", ".mlp.shared_experts.")),
    ("routers", (".mlp.gate.", ".mlp.correction.")),
    ("norms", ("norm.weight",)),
    ("attention", (".self_attn.",)),
    ("MLPs", (".mlp.",)),
    ("embedding", ("model.embed_tokens.",)),
    ("head", ("lm_head.",)),
)
"""The first whose mark is in a tensor's name; attention's own norms count as norms."""
_ARITHMETICS = (("int8", None), *(("none", dtype) for dtype in ("fp32", *TORCH_DTYPES)))
"""`model.quantize` and `model.dtype`."""


def inspect(
    model: Annotated[
        str,
        typer.Argument(help="Known name (see `antiphon models`), folder, .gguf file or hub name."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Say what MODEL is, how large, and how much context fits into this machine's memory.

    \b
    antiphon models inspect smollm2-135m
    antiphon models inspect ./model.gguf --json | jq .fits

    Reads every byte once, for the identity, and keeps none. What fits is what is free now, less
    the weights: no other worker, no store.
    """
    from antiphon.checkpoint import open_checkpoint, resolve
    from antiphon.host import available_bytes

    facts = describe(open_checkpoint(resolve(model)), available_bytes())
    typer.echo(json.dumps(facts, indent=2) if as_json else as_text(facts))


def describe(checkpoint: "Checkpoint", available: int) -> dict[str, Any]:
    """What `--json` prints, on a machine with `available` bytes free. Sizes in bytes."""
    spec = checkpoint.spec
    return {
        "name": checkpoint.name,
        "path": str(checkpoint.path),
        "format": checkpoint.format.value,
        "identity": checkpoint.identity.hex(),
        "architecture": spec.architecture,
        **_parameters(checkpoint),
        "layers": spec.layers,
        "hidden": spec.hidden,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "intermediate": spec.intermediate,
        "experts": None if spec.experts is None else asdict(spec.experts),
        "context_len": spec.context_len,
        "windows": sorted(set(spec.windows)),
        "rope": _rope(spec),
        "tied_embeddings": spec.tied_embeddings,
        "tokenizer": _tokenizer(checkpoint),
        "tensors": _tensors(checkpoint),
        "fits": _fits(checkpoint, available),
    }


def _parameters(checkpoint: "Checkpoint") -> dict[str, int]:
    """All weights, and those that a token meets (of its experts the active ones)."""
    experts = checkpoint.spec.experts
    idle = 0.0
    total = 0
    for name, entry in checkpoint.tensors.items():
        total += prod(entry.shape)
        if experts is not None and ".mlp.experts." in name:
            idle += prod(entry.shape) * (1 - experts.active / experts.count)
    return {"parameters": total, "active_parameters": total - round(idle)}


def _rope(spec: "ModelSpec") -> dict[str, Any]:
    scaling = spec.rope_scaling
    kind = None if scaling is None else type(scaling).__name__
    return {
        "theta": spec.rope_theta,
        "dims": spec.turning,
        "scaling": kind,
        **({} if scaling is None else asdict(scaling)),
    }


def _tokenizer(checkpoint: "Checkpoint") -> dict[str, Any]:
    from antiphon.text import Tokenizer

    source = checkpoint.tokenizer
    tokenizer = Tokenizer.load(source)
    return {
        "vocab_size": checkpoint.spec.vocab_size,
        "bos": tokenizer.bos_token or None,
        "eos": [tokenizer.token_text(token) for token in source.eos_token_ids],
        "adds_bos": source.add_bos,
        "chat_template": source.chat_template is not None,
    }


def _tensors(checkpoint: "Checkpoint") -> list[dict[str, Any]]:
    """One row for each class of tensors and type in which they are stored."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, entry in checkpoint.tensors.items():
        group = next((g for g, marks in _CLASSES if any(m in name for m in marks)), "others")
        empty = {"class": group, "storage": entry.storage.value}
        row = rows.setdefault(
            (group, entry.storage.value), {**empty, "tensors": 0, "parameters": 0, "bytes": 0}
        )
        row["tensors"] += 1
        row["parameters"] += prod(entry.shape)
        row["bytes"] += entry.raw.nbytes
    return list(rows.values())


def _fits(checkpoint: "Checkpoint", available: int) -> dict[str, Any]:
    """For each arithmetic that `serve` has, with the KV type of `kv.dtype = "auto"`: the tokens of
    KV. `dtype` is None where weights are rounded to whole numbers.

    Of layers with sliding windows a sequence keeps what they span: `kv_bytes_per_later_token` is
    what a token takes beyond them, `kv_bytes_of_context` a sequence as long as the context.
    """
    from antiphon.core.kv import PageGroups
    from antiphon.engine import device_weight_bytes, kv_dtype_of, layout_of, weight_bytes
    from antiphon.types import KvConfig

    kv, context_len = KvConfig(), checkpoint.spec.context_len

    choices = []
    for quantize, given in _ARITHMETICS:
        dtype = dtype_of(quantize, given)
        kv_dtype = kv_dtype_of("auto", dtype)
        on_torch = given in TORCH_DTYPES
        weights = (device_weight_bytes if on_torch else weight_bytes)(checkpoint, dtype)
        layout = layout_of(checkpoint.spec, kv.page_tokens, kv_dtype, windows_apart=True)
        groups = PageGroups(layout.groups, page_tokens=kv.page_tokens, block_tokens=kv.block_tokens)
        a_token = layout.token_bytes
        choices.append(
            {
                "quantize": quantize,
                "dtype": given,
                "weight_bytes": weights,
                "kv_dtype": kv_dtype.value,
                "kv_bytes_per_token": a_token,
                "kv_bytes_per_later_token": a_token * len(groups.lasting) // groups.entry_pages,
                "kv_bytes_of_context": groups.most_pages(context_len, 1) * layout.page_bytes,
                "kv_tokens": max(available - weights, 0) // a_token,
            }
        )
    return {"available_bytes": available, "choices": choices}


def as_text(facts: Mapping[str, Any]) -> str:
    """The same for people."""
    active = ""
    if facts["active_parameters"] != facts["parameters"]:
        active = f", {count_text(facts['active_parameters'])} active"
    theta = number_text(facts["rope"]["theta"])
    lines = [
        f"{facts['name']}: {facts['architecture']}, {count_text(facts['parameters'])} parameters"
        f"{active} ({facts['format']})",
        f"  {facts['path']}",
        f"  identity   {facts['identity'][:16]}…",
        f"  layers     {facts['layers']}, {facts['hidden']} wide, MLPs {facts['intermediate']}"
        + _experts_text(facts["experts"]),
        f"  attention  {plural(facts['heads'], 'head')} of {facts['head_dim']}, "
        f"{facts['kv_heads']} for keys and values{_windows_text(facts['windows'])}",
        f"  context    {plural(facts['context_len'], 'token')}, RoPE base {theta}"
        f", {facts['rope']['scaling'] or 'no scaling'}",
        f"  tokenizer  {_tokenizer_text(facts['tokenizer'])}",
        "Stored",
    ]
    lines += [
        f"  {row['class']:10} {row['storage']:5} {bytes_text(row['bytes']):>8}  "
        f"{count_text(row['parameters']):>6} in {plural(row['tensors'], 'tensor')}"
        for row in facts["tensors"]
    ]
    lines.append(f"Fits into {bytes_text(facts['fits']['available_bytes'])} that are free here")
    for choice in facts["fits"]["choices"]:
        lines.append(
            f"  {_option(choice)}: weights {bytes_text(choice['weight_bytes'])}, KV "
            f"{bytes_text(choice['kv_bytes_per_token'])} a token ({choice['kv_dtype']}): "
            + (plural(choice["kv_tokens"], "token") if choice["kv_tokens"] else "does not fit")
        )
        if any(facts["windows"]):
            lines.append(
                f"    {bytes_text(choice['kv_bytes_per_later_token'])} a token beyond the windows, "
                f"{bytes_text(choice['kv_bytes_of_context'])} for a sequence of "
                f"{facts['context_len']:,}"
            )
    return "\n".join(lines)


def _option(choice: Mapping[str, Any]) -> str:
    """How `serve` is told."""
    if choice["dtype"] is None:
        return f"--quantize {choice['quantize']}"
    return f"--dtype {choice['dtype']}"


def count_text(count: int) -> str:
    """Three digits with K, M or B."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{number_text(count / size, 3)}{unit}"
    return str(count)


def _experts_text(experts: Mapping[str, Any] | None) -> str:
    if experts is None:
        return ""
    shared = f" and {experts['shared']} shared" if experts["shared"] else ""
    return (
        f", {plural(experts['count'], 'expert')} of {experts['intermediate']}, "
        f"{experts['active']} active{shared}"
    )


def _windows_text(windows: list[int]) -> str:
    if not any(windows):
        return ""
    sizes = ", ".join(str(size) for size in windows if size)
    return f", windows of {sizes}{' in some layers' if 0 in windows else ''}"


def _tokenizer_text(tokenizer: Mapping[str, Any]) -> str:
    ends = " ".join(tokenizer["eos"]) or "none"
    template = "chat template" if tokenizer["chat_template"] else "no chat template"
    return f"{plural(tokenizer['vocab_size'], 'token')}, ends with {ends}, {template}"
