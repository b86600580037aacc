"""What `streaming.py` has measured, choice by choice and link by link, and what follows from it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from .streamed_worker import Asked

ADAPTIVE, RECOMPUTE = "adaptive", "recompute"


@dataclass
class Cell:
    """A choice on a link. `slo_s` 0: as soon as can be."""

    choice: str
    gbit: float
    slo_s: float = 0.0
    predicted_s: float = 0.0
    ttft_s: list[float] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    levels: list[dict[str, int]] = field(default_factory=list)
    """Blocks that came, by level."""

    @property
    def median_s(self) -> float:
        return statistics.median(self.ttft_s)

    def add(self, asked: Asked) -> None:
        self.ttft_s.append(asked.ttft_s)
        self.fetched.append(asked.fetched)
        self.levels.append(dict(asked.levels))
        self.problems += [asked.problem] if asked.problem else []


def line_of(cell: Cell) -> str:
    target = f" within {cell.slo_s:.2f} s" if cell.slo_s else ""
    chosen = f"  {cell.levels[0]}" if cell.choice == ADAPTIVE else ""
    missed = f"  {cell.problems[0]}" if cell.problems else ""
    return (
        f"{cell.choice + target:<24}{cell.gbit:5g} Gbit/s {cell.median_s:7.3f} s "
        f"(predicted {cell.predicted_s:.3f})  fetched {cell.fetched[0]}{chosen}{missed}"
    )


def ratios(cells: Sequence[Cell]) -> dict[float, float]:
    """Of each link: what adaptive takes, to the best of the others."""
    found: dict[float, float] = {}
    for gbit in dict.fromkeys(cell.gbit for cell in cells):
        here = [cell for cell in cells if cell.gbit == gbit and not cell.slo_s]
        fixed = [cell.median_s for cell in here if cell.choice != ADAPTIVE]
        mine = [cell.median_s for cell in here if cell.choice == ADAPTIVE]
        if mine and fixed:
            found[gbit] = mine[0] / min(fixed)
    return found


def violations(cells: Sequence[Cell], slos_s: Sequence[float]) -> list[dict[str, object]]:
    """For each target and choice: the share of prompts, over all links, that missed it."""
    found = []
    for slo_s in slos_s:
        for choice in dict.fromkeys(cell.choice for cell in cells):
            mine = slo_s if choice == ADAPTIVE else 0.0
            times = [
                ttft
                for cell in cells
                if cell.choice == choice and cell.slo_s == mine
                for ttft in cell.ttft_s
            ]
            if times:
                share = sum(ttft > slo_s for ttft in times) / len(times)
                found.append(
                    {"slo_s": round(slo_s, 3), "choice": choice, "missed": round(share, 3)}
                )
    return found


def table(cells: Sequence[Cell], gbits: Sequence[float]) -> str:
    """Seconds, and predicted ones, by choice and link."""
    lines = [f"{'TTFT, s (predicted)':<24}" + "".join(f"{gbit:>13g} G" for gbit in gbits)]
    by_row: dict[tuple[str, float], dict[float, Cell]] = {}
    for cell in cells:
        by_row.setdefault((cell.choice, cell.slo_s), {})[cell.gbit] = cell
    for (choice, slo_s), row in by_row.items():
        name = choice + (f" ≤ {slo_s:.2f} s" if slo_s else "")
        shown = (f"{row[g].median_s:7.3f} ({row[g].predicted_s:5.2f})" for g in gbits if g in row)
        lines.append(f"{name:<24}" + " ".join(shown))
    return "\n".join(lines)
