"""Numbers as people read them: three digits that matter, and a unit."""

from math import floor, isfinite, isinf, log10

from antiphon.core.goodput import Estimate
from antiphon.core.number_text import number_text
from antiphon.core.number_text import plural as plural
from antiphon.types import CallError, Seconds, Slo, TokenSource

NOTHING = "–"
"""Stands where there is no number."""

ERRORS = {
    CallError.UNREACHABLE: "no connection",
    CallError.TIMEOUT: "not at its end in time",
    CallError.OVERLOADED: "refused for want of room (429, 503)",
    CallError.REFUSED: "refused as wrong (4xx)",
    CallError.SERVER_ERROR: "server error (5xx)",
    CallError.GARBAGE: "not an answer by the API",
    CallError.CUT_SHORT: "stream cut short",
    CallError.UNSENT: "not sent: no room at the client",
    CallError.ABANDONED: "not sent: a call before it failed",
}
SOURCES = {
    TokenSource.USAGE: "by the server",
    TokenSource.TOKENIZER: "by a tokenizer of the client's",
    TokenSource.PIECES: "as pieces of content",
    TokenSource.SIMULATION: "by the simulation",
}


def number(value: float) -> str:
    """1,234 · 123 · 12.3 · 1.23 · 0.123."""
    if value == 0 or not isfinite(value):
        return number_text(value)
    size = floor(log10(abs(value)))
    rounded = round(value, 2 - size)
    # 9.996 is 10.0, not 10.00.
    digits = 2 - floor(log10(abs(rounded)))
    return f"{rounded:,.{max(0, digits)}f}"


def count(value: int) -> str:
    """1,234."""
    return f"{value:,}"


def seconds(value: Seconds | None) -> str:
    """48.3 ms · 1.24 s."""
    if value is None:
        return NOTHING
    return f"{number(1e3 * value)} ms" if abs(value) < 0.9995 else f"{number(value)} s"


def target(value: Seconds) -> str:
    """50 ms · 1.5 s: as somebody set it, without digits that say nothing."""
    return f"{number_text(1e3 * value)} ms" if value < 1 else f"{number_text(value)} s"


def rate(value: float) -> str:
    """1.87/s."""
    return f"{number(value)}/s"


def set_rate(value: float) -> str:
    """2.125 requests/s: as somebody set it."""
    return f"{number_text(value)} request{'' if value == 1 else 's'}/s"


def goal(value: float) -> str:
    """90 %: as somebody set it."""
    return f"{number_text(100 * value)} %"


def share(value: float) -> str:
    """93.1 %. Only what is all or nothing is 100 % or 0 %."""
    percent = round(100 * value, 1)
    if percent == 100 and value < 1:
        return "> 99.9 %"
    if percent == 0 and value > 0:
        return "< 0.1 %"
    return f"{number_text(percent)} %" if percent in (0, 100) else f"{percent:.1f} %"


def share_of(estimate: Estimate | None) -> str:
    """93.1 %; of nothing there is none."""
    return NOTHING if estimate is None else share(estimate.value)


def share_with_range(estimate: Estimate | None) -> str:
    """93.1 % (90.2–95.2)."""
    if estimate is None:
        return NOTHING
    return f"{share(estimate.value)} ({100 * estimate.low:.1f}–{100 * estimate.high:.1f})"


def slo(targets: Slo | None) -> str:
    """TTFT ≤ 500 ms and TPOT ≤ 50 ms."""
    if targets is None:
        return "the targets of their class"
    parts = [
        f"{name} ≤ {target(value)}"
        for name, value in (("TTFT", targets.ttft_s), ("TPOT", targets.tpot_s))
        if not isinf(value)
    ]
    return " and ".join(parts) or "no targets"


def ratio(value: float) -> str:
    """1.24×."""
    return f"{value:,.2f}×" if 0.1 <= value < 100 else f"{number(value)}×"


def plain(text: str) -> str:
    """Text from elsewhere, without what would move a terminal's cursor or change its colours."""
    return "".join(character if character.isprintable() else " " for character in text)
