"""Devices that a plan may use: what their makers publish, and a price to compare by.

Peaks are dense (no sparsity) and per device, bandwidths in decimal bytes. `efficiency` is what
kernels get of them in practice, an assumption that is the same for all; prices are illustrative,
for ratios between devices, and a scenario sets its own (`dataclasses.replace`).
"""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import inf, isfinite

from antiphon.errors import UsageError

TERA, GIGA = 1e12, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, or one CPU socket.

    `flops_16`, `flops_8`: dense operations a second in 16 and in 8 bits. `peer_bytes_per_s`: to
    another device of its node, one way; `network_bytes_per_s`: to another node, for each device.

    Raises `UsageError` for a number that is not finite and above 0, or an efficiency above 1.
    """

    name: str
    flops_16: float
    flops_8: float
    memory_bytes_per_s: float
    memory_bytes: float
    peer_bytes_per_s: float
    network_bytes_per_s: float
    price_per_hour: float
    source: str
    compute_efficiency: float = 0.6
    """Of `flops`, by large matrix products."""
    memory_efficiency: float = 0.8
    launch_s: float = 5e-6
    """Of each layer and step: what no bandwidth explains."""
    node_devices: int = 8

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, str):
                continue
            most = 1 if one.name.endswith("_efficiency") else inf
            if not (0 < value <= most and isfinite(value)):
                limit = "from above 0 to 1" if most == 1 else "finite and above 0"
                raise UsageError(f"device {self.name}: {one.name}: is {value}, must be {limit}")

    def link_bytes_per_s(self, *, one_node: bool) -> float:
        """The rate of the slowest link between devices that are all in one node, or are not."""
        if one_node:
            return self.peer_bytes_per_s
        return min(self.peer_bytes_per_s, self.network_bytes_per_s)


def _gpu(  # noqa: PLR0913  a line of a table
    name: str,
    *,
    tflops: float,
    tflops_8: float,
    gb_per_s: float,
    gb: float,
    peer_gb_per_s: float,
    network_gb_per_s: float = 50.0,
    price: float,
    source: str,
) -> Device:
    return Device(
        name=name,
        flops_16=tflops * TERA,
        flops_8=tflops_8 * TERA,
        memory_bytes_per_s=gb_per_s * GIGA,
        memory_bytes=gb * GIGA,
        peer_bytes_per_s=peer_gb_per_s * GIGA,
        network_bytes_per_s=network_gb_per_s * GIGA,
        price_per_hour=price,
        source=source,
    )


DEVICES = (
    _gpu(
        "a100",
        tflops=312,
        tflops_8=624,
        gb_per_s=2039,
        gb=80,
        peer_gb_per_s=300,
        network_gb_per_s=25,
        price=1.8,
        source="NVIDIA A100 80GB SXM data sheet",
    ),
    _gpu(
        "h100",
        tflops=989,
        tflops_8=1979,
        gb_per_s=3350,
        gb=80,
        peer_gb_per_s=450,
        price=3.0,
        source="NVIDIA H100 SXM data sheet",
    ),
    _gpu(
        "h200",
        tflops=989,
        tflops_8=1979,
        gb_per_s=4800,
        gb=141,
        peer_gb_per_s=450,
        price=3.6,
        source="NVIDIA H200 SXM data sheet",
    ),
    _gpu(
        "h800",
        tflops=989,
        tflops_8=1979,
        gb_per_s=3350,
        gb=80,
        peer_gb_per_s=200,
        price=2.8,
        source="NVIDIA H800 SXM: an H100 with NVLink at 400 GB/s both ways together",
    ),
    _gpu(
        "h20",
        tflops=148,
        tflops_8=296,
        gb_per_s=4000,
        gb=96,
        peer_gb_per_s=450,
        price=1.6,
        source="NVIDIA H20 data sheet",
    ),
    _gpu(
        "b200",
        tflops=2250,
        tflops_8=4500,
        gb_per_s=8000,
        gb=180,
        peer_gb_per_s=900,
        price=5.5,
        source="NVIDIA DGX B200 data sheet, per GPU",
    ),
    _gpu(
        "mi300x",
        tflops=1307,
        tflops_8=2615,
        gb_per_s=5300,
        gb=192,
        peer_gb_per_s=448,
        price=2.8,
        source="AMD Instinct MI300X data sheet",
    ),
    _gpu(
        "l40s",
        tflops=362,
        tflops_8=733,
        gb_per_s=864,
        gb=48,
        peer_gb_per_s=32,
        network_gb_per_s=25,
        price=1.0,
        source="NVIDIA L40S data sheet; PCIe 4.0 x16 between devices",
    ),
    _gpu(
        "rtx-4090",
        tflops=165,
        tflops_8=330,
        gb_per_s=1008,
        gb=24,
        peer_gb_per_s=32,
        network_gb_per_s=12.5,
        price=0.4,
        source="NVIDIA Ada architecture paper; PCIe 4.0 x16 between devices",
    ),
    Device(
        name="cpu-socket",
        flops_16=60 * TERA,
        flops_8=120 * TERA,
        memory_bytes_per_s=307 * GIGA,
        memory_bytes=512 * GIGA,
        peer_bytes_per_s=30 * GIGA,
        network_bytes_per_s=12.5 * GIGA,
        price_per_hour=0.5,
        source="one Xeon socket with AMX and 8 channels of DDR5-4800",
        compute_efficiency=0.4,
        node_devices=2,
    ),
)
"""By name in scenarios."""


def device_of(name: str) -> Device:
    """The device of that name. Raises `UsageError` that lists those that are known."""
    known = {device.name: device for device in DEVICES}
    if name in known:
        return known[name]
    near = get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {near[0]!r}?" if near else "."
    raise UsageError(f"device {name!r} is not known{hint} Known are {', '.join(known)}")
