"""The table: rows, medians with their spread, our ratio to the best peer, the goal."""

from collections.abc import Mapping, Sequence

from race import Entrant, Numbers, Outcome, Results
from rows import MEMORY_GOAL_MB, ROWS, START_GOAL, START_PEER, TWO_CORES_GOAL


def ratio(ours: Outcome, peers: Sequence[Outcome]) -> float | None:
    """Our median to the best peer's, of what is better when it is higher."""
    theirs = [peer.median for peer in peers if isinstance(peer, Numbers)]
    return ours.median / max(theirs) if isinstance(ours, Numbers) and theirs else None


def ratios(row: str, results: Mapping[str, Results], entrants: Sequence[Entrant]) -> dict:
    """What the row's goal speaks of, for each of our quantisations: a ratio, or megabytes."""
    found, here = {}, results[row]
    peers = [here[entrant.name] for entrant in entrants if entrant.peer]
    for name in (entrant.name for entrant in entrants if not entrant.peer):
        match row:
            case "start":
                value = ratio(here[name], [here[START_PEER]] if START_PEER in here else [])
            case "memory":
                value = here[name].median if isinstance(here[name], Numbers) else None
            case _:
                value = ratio(here[name], peers)
        if value is not None:
            found[name] = value
        if row == "prefill-2" and "prefill" in results:
            scaling = ratio(here[name], [results["prefill"][name]])
            if scaling is not None:
                found[f"{name}, to one core"] = scaling
    return found


def goal(row: str) -> str:
    match row:
        case "start":
            return f"≤ {START_GOAL:.1f}× {START_PEER}"
        case "memory":
            return f"≤ {MEMORY_GOAL_MB} MB"
        case "prefill-2":
            return f"≥ {TWO_CORES_GOAL}× one core"
    (found,) = (one for one in ROWS if one.name == row)
    return f"≥ {found.goal}×" + (f", stretch {found.stretch}×" if found.stretch else "")


def text(results: Mapping[str, Results], entrants: Sequence[Entrant]) -> str:
    """Markdown."""
    names = [entrant.name for entrant in entrants]
    head = ["", *names, "ours to the best peer", "goal"]
    lines = [head, ["---"] * len(head)]
    for row, here in results.items():
        found = ratios(row, results, entrants)
        told = "; ".join(f"{name}: {measure(row, value)}" for name, value in found.items())
        cells = [cell(row, here[name]) for name in names]
        lines.append([title(row), *cells, told or "–", goal(row)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measure(row: str, value: float) -> str:
    return f"{value:.0f} MB" if row == "memory" else f"{value:.2f}×"


def title(row: str) -> str:
    units = {"start": "start, s", "memory": "memory, MB"}
    return units.get(row, f"{row}, tokens/s")


def cell(row: str, outcome: Outcome) -> str:
    """Median (lowest to highest); `!` where others used the core."""
    if not isinstance(outcome, Numbers):
        return "failed"
    digits = 2 if row == "start" else 0 if outcome.median >= 100 else 1
    low, high = min(outcome.values), max(outcome.values)
    mark = " !" if outcome.disturbed else ""
    return f"{outcome.median:.{digits}f} ({low:.{digits}f}–{high:.{digits}f}){mark}"
