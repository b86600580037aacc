"""Workloads and arrivals as a list for a terminal."""

from collections.abc import Iterable, Iterator

from antiphon.workload import ARRIVALS, WORKLOADS, OptionLine


def workloads_text() -> str:
    """All of them, with what can be said about each and what holds without it."""
    lines = ["Workloads (--workload NAME or NAME:KEY=VALUE,…)"]
    for kind in WORKLOADS:
        lines += ["", f"  {kind.name}: {kind.summary}", *_options(kind.options)]
    lines += ["", "Arrivals (--arrivals; without rate=… the rate is --rate)"]
    for kind in ARRIVALS:
        lines += ["", f"  {kind.example}: {kind.summary}", *_options(kind.options)]
    return "\n".join(lines)


def _options(options: Iterable[OptionLine]) -> Iterator[str]:
    for option in options:
        default = f" [{option.default}]" if option.default else ""
        yield f"      {option.key + '=…':14} {option.help}{default}"
