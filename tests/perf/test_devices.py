"""The catalogue of devices: what must be there, and what no device may be."""

from dataclasses import replace
from math import inf, nan

import pytest

from antiphon.errors import UsageError
from antiphon.perf.hardware import DEVICES, Device, device_of

A100 = device_of("a100")


def test_the_devices_that_plans_are_made_of_are_there() -> None:
    assert [one.name for one in DEVICES] == [
        *("a100", "h100", "h200", "h800", "h20", "b200", "mi300x", "l40s", "rtx-4090"),
        "cpu-socket",
    ]


@pytest.mark.parametrize("device", DEVICES, ids=lambda one: one.name)
def test_numbers_of_a_device_go_together(device: Device) -> None:
    """Twice the rate at half the bits, and no link as fast as the memory behind it."""
    assert device.flops_8 / device.flops_16 == pytest.approx(2, rel=0.02)
    assert device.network_bytes_per_s <= device.peer_bytes_per_s < device.memory_bytes_per_s
    assert device.source


def test_devices_differ_as_their_makers_say() -> None:
    """A slip in one digit would break these: ratios that the industry is known for."""
    h100, h200, h800, h20 = (device_of(name) for name in ("h100", "h200", "h800", "h20"))
    assert h100.flops_16 == h200.flops_16 == h800.flops_16
    assert h100.flops_16 / A100.flops_16 == pytest.approx(3.17, abs=0.01)
    assert h200.memory_bytes_per_s / h100.memory_bytes_per_s == pytest.approx(1.43, abs=0.01)
    assert h800.peer_bytes_per_s < h100.peer_bytes_per_s
    assert h20.flops_16 < A100.flops_16 / 2
    assert h20.memory_bytes_per_s > h100.memory_bytes_per_s


def test_a_link_is_as_fast_as_its_slowest_part() -> None:
    assert A100.link_bytes_per_s(one_node=True) == A100.peer_bytes_per_s
    assert A100.link_bytes_per_s(one_node=False) == A100.network_bytes_per_s
    slow = replace(A100, peer_bytes_per_s=1e9)
    assert slow.link_bytes_per_s(one_node=False) == 1e9


@pytest.mark.parametrize("value", [0, -1, inf, nan])
@pytest.mark.parametrize("field", ["flops_16", "memory_bytes", "price_per_hour", "node_devices"])
def test_a_number_that_no_device_has_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"device a100: {field}: .* finite and above 0"):
        replace(A100, **{field: value})


@pytest.mark.parametrize("value", [0, 1.01, nan])
def test_an_efficiency_is_a_share(value: float) -> None:
    with pytest.raises(UsageError, match=r"memory_efficiency: .* from above 0 to 1"):
        replace(A100, memory_efficiency=value)


def test_a_name_that_is_not_known_gets_the_nearest_and_all() -> None:
    with pytest.raises(UsageError, match=r"'H100' is not known: did you mean 'h100'\? Known are a"):
        device_of("H100")
