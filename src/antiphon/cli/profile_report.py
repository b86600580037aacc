"""What `antiphon profile` prints: the measured steps, the fitted model, how good it is."""

from math import inf, isfinite
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from antiphon.perf import Accuracy, Point, Profile, Ramp
from antiphon.perf.accuracy import GOAL_MEDIAN, GOAL_P95

NOISY = 0.1
"""A spread of the same step's times, above which a profile is not to be trusted."""
_ENOUGH = 3
"""Fewer times of a step say nothing of how far they lie apart."""
_WIDTH = 100


def report(profile: Profile) -> str:
    """Several lines of text."""
    console = Console(width=_WIDTH, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(_points(profile.points))
        console.print(_model(profile), soft_wrap=True)
        for line in _verdict(profile):
            console.print(line, soft_wrap=True)
    return captured.get().rstrip("\n")


def _points(points: tuple[Point, ...]) -> Table:
    """Context: the longest of the step's sequences."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for name in ("sequences", "tokens", "context", "ms", "spread", "fitted ms", "error"):
        table.add_column(name, justify="right")
    table.add_column("")
    for point in points:
        chunks = point.shape.chunks
        table.add_row(
            point.shape.kind.value,
            str(len(chunks)),
            str(point.shape.work.tokens),
            str(max(chunk.start + chunk.tokens for chunk in chunks)),
            _ms(point.seconds),
            f"{point.spread:.1%}" if point.repeats >= _ENOUGH else "–",
            _ms(point.predicted_s),
            f"{point.predicted_s / point.seconds - 1:+.1%}",
            "held out" if point.held_out else "",
        )
    return table


def _model(profile: Profile) -> str:
    fit = profile.step_time
    return "\n".join(
        [
            "A step takes the sum of",
            f"  {_us(fit.fixed_s)} each time",
            *_ramp(fit.token, "token"),
            *_ramp(fit.sampled, "sampled token"),
            f"  {_us(fit.chunk_s)} a sequence",
            f"  {_us(1000 * fit.context_s)} per 1,000 tokens of context that are read",
            f"  {_us(1e6 * fit.attention_s)} per million pairs of a token and one it attends to",
        ]
    )


def _ramp(ramp: Ramp, unit: str) -> list[str]:
    ends = [*ramp.starts[1:], None]
    return [
        f"  {_us(slope)} a {unit}"
        + ("" if start == 0 else f" beyond {start:,}")
        + ("" if end is None else f" up to {end:,}")
        for start, end, slope in zip(ramp.starts, ends, ramp.slopes_s, strict=True)
    ]


def _verdict(profile: Profile) -> list[str]:
    spreads = [point.spread for point in profile.points if point.repeats >= _ENOUGH]
    spread = median(spreads) if 2 * len(spreads) >= len(profile.points) else inf
    lines = [
        "",
        f"Error on {profile.fitted.points} fitted steps: {_errors(profile.fitted)}",
        f"Error on {profile.held_out.points} held-out steps: {_errors(profile.held_out)}"
        f" (goal: median {GOAL_MEDIAN:.0%}, 95 % below {GOAL_P95:.0%}:"
        f" {'met' if profile.held_out.good else 'missed'})",
        f"Spread of the same step's times: median {_share(spread)};"
        f" load when it began: {profile.load:.2f} a core",
    ]
    if profile.left_out:
        lines.append(f"{profile.left_out} other steps took too long for the budget.")
    if spread > NOISY or profile.load > 1:
        lines.append(
            "Warning: the machine was busy with other things. Measure again when it is quiet."
        )
    return lines


def _errors(errors: Accuracy) -> str:
    return f"median {errors.median:.1%}, 95 % below {errors.p95:.1%}, worst {errors.worst:.1%}"


def _share(spread: float) -> str:
    return f"{spread:.1%}" if isfinite(spread) else "unknown, the machine became too slow to repeat"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:12,.3f} µs"
