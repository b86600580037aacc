"""Where a measurement is kept: JSON with the machine and the commit that it belongs to."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def cpu_model() -> str:
    """Name of the CPU as Linux tells it, else what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """Commit of the working tree, with "+changes" if files differ from it."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    but_results = (":/", ":(top,exclude)benchmarks/results")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *but_results)
    return (git("rev-parse", "HEAD") or "unknown") + ("+changes" if changed else "")


def write(name: str, results: Mapping[str, object]) -> Path:
    """Keep `results` as benchmarks/results/NAME.json; returns the path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {
        "benchmark": name,
        "commit": commit(),
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "load_1min": round(os.getloadavg()[0], 2),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "results": results,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
