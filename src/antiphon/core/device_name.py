"""Names of devices: "cpu", "cuda", "cuda:1"; and what is wrong with one on a given machine."""

import re
from dataclasses import dataclass

from .number_text import number_text

_NAME = re.compile(r"(cpu)|(cuda)(?::(\d{1,3}))?", re.ASCII)
FORMS = "cpu, cuda or cuda:N, such as cuda:0"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class DeviceName:
    """`index` None: CUDA's devices in turn, one worker after the other."""

    kind: str
    index: int | None = None

    @property
    def text(self) -> str:
        """As it is written in a configuration."""
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def cuda(self) -> bool:
        """Whether it is no processor."""
        return self.kind == "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaFound:
    """What a machine has of CUDA. `program`: the name and version of who looked.

    `build`: the version of CUDA that it was built for, None: for none. `devices`: their names.
    `why_none`: what it says if there are none.
    """

    program: str
    build: str | None
    devices: tuple[str, ...] = ()
    why_none: str = ""


def parse_device(text: str) -> DeviceName | None:
    """None: it names no device."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    return DeviceName(match[1] or match[2], int(match[3]) if match[3] else None)


def device_of_worker(name: DeviceName, number: int, devices: int) -> DeviceName:
    """Where worker `number` of a host with so many CUDA devices runs."""
    if not name.cuda or name.index is not None:
        return name
    return DeviceName("cuda", number % max(1, devices))


def device_problem(name: DeviceName, found: CudaFound) -> str | None:
    """Why a model can't run there, with the remedy; None: it can."""
    if not name.cuda:
        return None
    asked = f"engine.device = {name.text} (--device)"
    if found.build is None:
        return (
            f"{asked}: {found.program} is built without CUDA: install a build of it for your "
            f"CUDA (pytorch.org says which), or use --device cpu"
        )
    if not found.devices:
        why = found.why_none or "it does not say why"
        return (
            f"{asked}: {found.program}, built for CUDA {found.build}, finds no device here "
            f"({why}): see whether `nvidia-smi` does, or use --device cpu"
        )
    if name.index is not None and name.index >= len(found.devices):
        there = ", ".join(f"cuda:{n} ({device})" for n, device in enumerate(found.devices))
        return f"{asked}: there is no such device here: there are {there}"
    return None


def room_problem(name: DeviceName, *, weights: int, kv: int, free: int) -> str | None:
    """Why weights and KV memory, in bytes, have no room on a device; None: they have."""
    if weights + kv <= free:
        return None
    remedy = "lower kv.memory_bytes (--kv-memory)"
    if weights >= free:
        remedy = "take a smaller model or dtype, or a larger device"
    return (
        f"engine.device = {name.text} (--device): {_gib(free)} are free there, but the weights "
        f"need {_gib(weights)} and the KV memory {_gib(kv)}: {remedy}"
    )


def _gib(size: int) -> str:
    return f"{number_text(round(size / _GIB, 2))} GiB"
