"""The figure of `streaming.py`: what each choice takes, by link; what it misses, by target."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plot(found: Mapping[str, Any], path: Path) -> Path:
    """Time to first token against the link's rate, and the share of targets that were missed."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    soonest = [cell for cell in found["cells"] if not cell["slo_s"]]
    for choice in dict.fromkeys(cell["choice"] for cell in soonest):
        mine = [cell for cell in soonest if cell["choice"] == choice]
        style = {"adaptive": "ko-", "recompute": "k--"}.get(choice, ".-")
        gbits = [cell["gbit_per_s"] for cell in mine]
        left.plot(gbits, [cell["median_s"] for cell in mine], style, label=choice)
    left.set(xscale="log", yscale="log", xlabel="link, Gbit/s", ylabel="time to first token, s")
    left.legend(fontsize=8)
    left.grid(alpha=0.3)
    targets = list(dict.fromkeys(one["slo_s"] for one in found["violations"]))
    choices = list(dict.fromkeys(one["choice"] for one in found["violations"]))
    width = 0.8 / max(1, len(targets))
    for number, target in enumerate(targets):
        shares = {o["choice"]: o["missed"] for o in found["violations"] if o["slo_s"] == target}
        places = [place + number * width for place in range(len(choices))]
        bars = [100 * shares.get(choice, 0.0) for choice in choices]
        right.bar(places, bars, width, label=f"TTFT ≤ {target:g} s")
    right.set_xticks([place + 0.4 for place in range(len(choices))], choices, rotation=45)
    right.set(ylabel="prompts over all links that miss it, %")
    right.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
