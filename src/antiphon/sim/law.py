"""What a broken law is, and the laws that one worker's counts can break."""

import re

from antiphon.errors import BugError
from antiphon.types import WorkerView

_NUMBERED = re.compile(r"I\d+(?=:)")
_NAME = re.compile(r"[\w./#+-]*\d[\w./#+-]*|\[.*?\]|\(.*?\)")


class LawBroken(BugError):
    """A run broke a numbered law."""


def law_of(problem: str) -> str:
    """Which law a problem is about: its number, or the words without whom and when. Pure."""
    numbered = _NUMBERED.match(problem)
    return numbered[0] if numbered else " ".join(_NAME.sub("…", problem).split())


def check_pages(view: WorkerView) -> None:
    """I3: free + held + cached pages are all pages."""
    if view.free_pages + view.held_pages + view.cached_pages != view.total_pages:
        raise LawBroken(f"I3: pages do not add up in {view}")
