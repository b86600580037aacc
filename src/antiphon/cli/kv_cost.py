"""`antiphon kv cost`: how much KV a model makes, and when it pays to keep it."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

import typer

from antiphon.core.config import parse_size
from antiphon.core.kv_cost import (
    KvModel,
    Storage,
    StorageCase,
    Traffic,
    bytes_for,
    grouped,
    kv_bytes_per_day,
    storage_case,
    useful_bytes_per_s,
)
from antiphon.core.number_text import number_text, plural
from antiphon.errors import UsageError

from . import kv_cost_options, quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """All that is printed: what was assumed, then what follows."""

    model: KvModel
    value_bits: float
    codec_ratio: float
    hit_rate: float
    traffic: Traffic
    bytes_per_token: float
    device_bytes_per_day: float
    bytes_per_day: float
    useful_bytes_per_s: float
    cases: tuple[StorageCase, ...]


def cost(
    model: kv_cost_options.Model = "deepseek-r1",
    devices: kv_cost_options.Devices = 8,
    tokens_per_s: kv_cost_options.TokensPerS = None,
    busy: kv_cost_options.Busy = 1.0,
    device_price: kv_cost_options.DevicePrice = 2.0,
    value_bits: kv_cost_options.ValueBits = 16,
    codec_ratio: kv_cost_options.CodecRatio = 1.0,
    capacity: kv_cost_options.Capacity = None,
    keep: kv_cost_options.Keep = None,
    ssd_price: kv_cost_options.SsdPrice = 0.05,
    ram_price: kv_cost_options.RamPrice = 2.0,
    hit_rate: kv_cost_options.HitRate = 0.1,
    list_models: kv_cost_options.ListModels = False,
    as_json: kv_cost_options.AsJson = False,
) -> None:
    """Say how much KV MODEL makes in a day, and from which hit rate on storing it pays.

    Prices are in any one currency. Everything that is assumed is printed and can be changed.

    \b
    antiphon kv cost deepseek-r1 --devices 1
    antiphon kv cost llama-3-70b --keep 10min --codec-ratio 4
    antiphon kv cost ./model.gguf --tokens-per-s 400 --device-price 0.1
    """
    if keep is not None and capacity is not None:
        raise UsageError("--keep and --capacity both say how much storage there is: give one")
    if list_models:
        typer.echo(catalogue_table())
        return
    _check_numbers(
        tokens_per_s, busy, device_price, value_bits, codec_ratio, ssd_price, ram_price, hit_rate
    )
    chosen = find_model(model)
    traffic = Traffic(
        devices=devices,
        tokens_per_s=chosen.tokens_per_s if tokens_per_s is None else tokens_per_s,
        busy_share=busy,
        device_price_per_hour=device_price,
    )
    per_token = chosen.bytes_per_token(value_bits / 8)
    size = _storage_bytes(traffic, per_token / codec_ratio, capacity, keep)
    storages = [
        Storage(name=name, capacity_bytes=size, price_per_gb_month=price)
        for name, price in (("SSD", ssd_price), ("memory", ram_price))
    ]
    estimate = _estimate(chosen, traffic, storages, value_bits, codec_ratio, hit_rate)
    typer.echo(json.dumps(as_values(estimate), indent=2) if as_json else as_text(estimate))


def _storage_bytes(
    traffic: Traffic, stored: float, capacity: str | None, keep: str | None
) -> float:
    """How much is there, or is needed for blocks to stay so long. `stored`: bytes a token."""
    if keep is not None:
        return bytes_for(traffic, stored, quantities.seconds(keep, "--keep"))
    return _capacity(kv_cost_options.CAPACITY if capacity is None else capacity)


def _estimate(
    model: KvModel,
    traffic: Traffic,
    storages: Sequence[Storage],
    value_bits: float,
    codec_ratio: float,
    hit_rate: float,
) -> Estimate:
    per_token = model.bytes_per_token(value_bits / 8)
    stored = per_token / codec_ratio
    return Estimate(
        model=model,
        value_bits=value_bits,
        codec_ratio=codec_ratio,
        hit_rate=hit_rate,
        traffic=traffic,
        bytes_per_token=per_token,
        device_bytes_per_day=kv_bytes_per_day(traffic, per_token) / traffic.devices,
        bytes_per_day=kv_bytes_per_day(traffic, per_token),
        useful_bytes_per_s=useful_bytes_per_s(traffic, stored),
        cases=tuple(
            storage_case(traffic, storage, stored_bytes_per_token=stored, hit_rate=hit_rate)
            for storage in storages
        ),
    )


def find_model(name: str) -> KvModel:
    """A model of the catalogue, else what a checkpoint of that name says. Raises `UsageError`."""
    from .kv_models import KV_MODELS

    known = {model.name: model for model in KV_MODELS}
    if name in known:
        return known[name]
    from antiphon.checkpoint import open_checkpoint, resolve

    try:
        checkpoint = open_checkpoint(resolve(name))
    except UsageError as error:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "--list shows those known by name"
        raise UsageError(f"{error} ({hint})") from error
    spec = checkpoint.spec
    return grouped(
        checkpoint.name,
        layers=spec.layers,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        source=name,
    )


def as_values(estimate: Estimate) -> dict[str, Any]:
    """For `--json`: the dataclasses' own names."""
    return asdict(estimate)


def as_text(estimate: Estimate) -> str:
    """Assumptions, then results, one a line."""
    model, traffic = estimate.model, estimate.traffic
    ratio = estimate.codec_ratio
    codec = f", stored in 1/{number_text(ratio)} of it" if ratio != 1 else ""
    lines = [
        f"{model.name}: {bytes_text(estimate.bytes_per_token)} of KV a token{codec}",
        f"  {plural(model.layers, 'layer')}, {model.why}, "
        f"{number_text(estimate.value_bits)} bits each "
        f"({model.source})",
        "Assumed",
        f"  {plural(traffic.devices, 'device')}, each "
        f"{traffic.tokens_per_s:,.0f} tokens/s, busy {traffic.busy_share:.0%} of the time, "
        f"{number_text(traffic.device_price_per_hour)} an hour",
        f"  {share_text(estimate.hit_rate)} of all tokens are found in storage",
        "KV",
        f"  {bytes_text(estimate.device_bytes_per_day)} a day from each device, "
        f"{bytes_text(estimate.bytes_per_day)} from all",
        f"  a prompt is read sooner than computed from {bytes_text(estimate.useful_bytes_per_s)}/s "
        f"a device on",
        f"  prefill costs {number_text(traffic.price_per_token * 1e6, 3)} for a million tokens",
    ]
    for case in estimate.cases:
        storage = case.storage
        lines += [
            f"{bytes_text(storage.capacity_bytes)} of {storage.name} at "
            f"{number_text(storage.price_per_gb_month)} for a GB and month: "
            f"{number_text(case.price_per_hour, 3)} an hour",
            f"  pays for itself from {share_text(case.break_even_hit_rate)} on"
            + (": it never can" if case.break_even_hit_rate > 1 else ""),
            f"  holds {time_text(case.holds_s)} of this traffic; at "
            f"{share_text(estimate.hit_rate)} it "
            + ("saves" if case.saved_per_hour >= 0 else "loses")
            + f" {number_text(abs(case.saved_per_hour), 3)} an hour",
        ]
    return "\n".join(lines)


def catalogue_table() -> str:
    """Known models with their KV in 16 bits."""
    from .kv_models import KV_MODELS

    return "\n".join(
        f"{model.name:15} {bytes_text(model.bytes_per_token(2)):>8} a token in FP16: "
        f"{plural(model.layers, 'layer')}, {model.why} ({model.source})"
        for model in KV_MODELS
    )


def bytes_text(size: float) -> str:
    """Three digits in decimal units."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5:
            return f"{number_text(size, 3)} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"


def share_text(share: float) -> str:
    """Two digits of a percentage."""
    return f"{number_text(share * 100, 2)} %"


def time_text(seconds: float) -> str:
    """Three digits in the largest unit that leaves at least one."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{number_text(seconds / length, 3)} {unit}"
    return f"{number_text(seconds, 3)} s"


def _check_numbers(*values: float | None) -> None:
    """A range lets through what compares with nothing."""
    if any(value is not None and math.isnan(value) for value in values):
        raise UsageError("nan is no number to reckon with: give another one")


def _capacity(text: str) -> float:
    size = parse_size(text)
    if not size:
        raise UsageError(f'--capacity "{text}": must be a size such as 500GB or 2TB')
    return size
