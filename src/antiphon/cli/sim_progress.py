"""How far simulations are, as a line for whoever waits."""

import time
from collections.abc import Sequence

from .progress import Progress
from .sim_jobs import News, SimJob

_TERMINAL_S, _LINES_S = 0.25, 10.0
_FIRST_LINE_S = 1.0
"""A run that takes longer says soon that it is under way."""
_BAR = 20
_LEAST_SHARE = 0.03
"""Before it, how long the rest takes is a guess."""


class SimProgress:
    """Says on `progress` how the jobs stand; seldom where there is no terminal."""

    def __init__(self, jobs: Sequence[SimJob], progress: Progress) -> None:
        self._jobs = {job.number: job for job in jobs}
        self._progress = progress
        self._shares: dict[int, float] = {}
        self._begun_at = time.monotonic()
        live = progress.is_live
        self._tell_at = self._begun_at + (_TERMINAL_S if live else _FIRST_LINE_S)

    def hear(self, news: News) -> None:
        """Mutates: a job has come so far."""
        number, now, line = news
        job = self._jobs[number]
        self._shares[number] = 0.0 if job.aim else min(1.0, now / job.plan.duration_s)
        if time.monotonic() >= self._tell_at:
            every_s = _TERMINAL_S if self._progress.is_live else _LINES_S
            self._tell_at = time.monotonic() + every_s
            self._progress.say(self.line(job, line))

    def over(self, job: SimJob) -> None:
        """Mutates: a job is over."""
        self._shares[job.number] = 1.0

    def line(self, job: SimJob, line: str) -> str:
        """The whole, then how this job stands."""
        count = len(self._jobs)
        share = sum(self._shares.values()) / count
        filled = round(share * _BAR)
        parts = ["█" * filled + "░" * (_BAR - filled) + f" {share:.0%}"]
        if count > 1:
            done = sum(one == 1.0 for one in self._shares.values())
            parts.append(f"{done} of {count} done")
        took_s = time.monotonic() - self._begun_at
        if _LEAST_SHARE <= share < 1:
            parts.append(f"about {took_s * (1 - share) / share:.0f} s left")
        if count > 1:
            parts.append(f"{job.name}, seed {job.plan.seed}")
        return " · ".join([*parts, line])
