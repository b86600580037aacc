"""The page's tables are the code's: whoever changes a number changes both."""

from pathlib import Path

import pytest
from public_measurements import PUBLISHED

from antiphon.perf.hardware import (
    DEVICES,
    MODELS,
    Deployment,
    Device,
    ModelShape,
    Parallelism,
    device_of,
    shape_of,
)
from antiphon.perf.hardware.deployment import ACTIVATION_SHARE, LEAST_KV_TOKENS
from antiphon.perf.published_times import DISTSERVE, PublishedStepTime

PAGE = (Path(__file__).parents[2] / "docs/reference/performance-models.md").read_text()


def device_row(one: Device) -> str:
    cells = [
        f"`{one.name}`",
        f"{one.flops_16 / 1e12:g}",
        f"{one.flops_8 / 1e12:g}",
        f"{one.memory_bytes / 1e9:g}",
        f"{one.memory_bytes_per_s / 1e9:g}",
        f"{one.peer_bytes_per_s / 1e9:g}",
        f"{one.network_bytes_per_s / 1e9:g}",
        f"{one.node_devices}",
        f"{one.compute_efficiency:g} / {one.memory_efficiency:g}",
        f"{one.price_per_hour:g}",
        one.source,
    ]
    return f"| {' | '.join(cells)} |"


def model_row(one: ModelShape) -> str:
    attention = (
        f"latent, {one.latent.rank} + {one.latent.rope_dim}"
        if one.latent
        else f"{one.kv_heads} × {one.head_dim}"
    )
    experts = one.experts
    cells = [
        f"`{one.name}`",
        f"{one.parameters / 1e9:.3g}",
        f"{one.active_parameters / 1e9:.3g}",
        f"{one.layers}",
        f"{one.hidden}",
        f"{one.heads}",
        attention,
        f"{experts.active} of {experts.routed}" if experts else "",
        f"{one.layers * one.kv_values_per_token * 2:,}",
        f"{one.context:,}",
        one.source,
    ]
    return f"| {' | '.join(cells)} |"


def distserve_row(which: tuple[str, int], times: PublishedStepTime) -> str:
    model, tensor = which
    lines = [
        f"{line.a:g}, {line.b:g}, {line.c:g}" for line in (times.prefill, times.small, times.large)
    ]
    kept = "not published" if times.kv_tokens is None else f"{times.kv_tokens:,}"
    return f"| `{model}` | {tensor} | {' | '.join(lines)} | {kept} |"


def ratio_row(which: tuple[str, int], times: PublishedStepTime) -> str:
    """What our roofline says over what DistServe's coefficients say."""
    model, tensor = which
    ours = Deployment(
        model=shape_of(model),
        device=device_of("a100"),
        parallelism=Parallelism(tensor=tensor),
        step_tokens=8192,
    )
    ratios = [ours.prefill_s(one) / times.prefill_s(one) for one in (128, 512, 2048)]
    ratios += [
        ours.decode_step_s(one, one * 500) / times.decode_step_s(one, one * 500)
        for one in (1, 32, 128)
    ]
    kept = ours.kv_tokens / times.kv_tokens if times.kv_tokens else None
    cells = [f"{one:.2f}" for one in ratios] + [f"{kept:.2f}" if kept else ""]
    return f"| `{model}` | {tensor} | {' | '.join(cells)} |"


TABLES = {
    "## Devices": [device_row(one) for one in DEVICES],
    "## Models": [model_row(one) for one in MODELS],
    "## DistServe's coefficients": [distserve_row(*one) for one in DISTSERVE.items()],
    "### Beside what others measured": [one.row for one in PUBLISHED],
    "### Beside DistServe's engine": [ratio_row(*one) for one in DISTSERVE.items()],
}


def rows_under(heading: str) -> list[str]:
    """The first table under it, without its head."""
    lines = PAGE.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0].splitlines()
    return [line for line in lines if line.startswith("|")][2:]


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_is_what_the_code_says(heading: str) -> None:
    assert rows_under(heading) == TABLES[heading]


def test_assumptions_are_what_the_code_assumes() -> None:
    assert f"{ACTIVATION_SHARE:.0%} of a device's memory".replace("%", " %") in PAGE
    assert f"{LEAST_KV_TOKENS:,} tokens" in PAGE
    assert {one.launch_s for one in DEVICES} == {5e-6}
    assert "5 µs a layer" in PAGE


def test_prices_are_marked_as_illustrative() -> None:
    assert "prices are **illustrative**" in PAGE
