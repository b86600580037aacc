"""Who made the processor."""

from functools import cache
from pathlib import Path


@cache
def processor_maker() -> str:
    """As Linux has it, in small letters, such as "genuineintel"; "unknown" elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "unknown"
    makers = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(makers, "unknown").lower()
