"""A row, measured: everyone's passes in turn, so that whatever drifts hits all of them."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from antiphon_server import AntiphonServer
from contestant import Setup
from environment import Peer, python_of
from process import Competitor, Failed, Pass
from rows import Row

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
QUIET_CPU_SHARE = 0.95

# What each library reads before it chooses its kernels; ggml has chosen when it was compiled.
ISA = {
    "native": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        # OpenVINO's own kernels and its copy of oneDNN: one limit without the other breaks it.
        "OV_CPU_MAX_ISA": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+avx,+avx2,"
        "+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+fxsr,+xsave",
    },
}


@dataclass(frozen=True)
class Entrant:
    """A column of the table: a peer, or ours (no peer) with one quantisation."""

    name: str
    peer: Peer | None = None
    quantize: str = ""


@dataclass(frozen=True)
class Numbers:
    """The passes' values in the row's unit; `cpu_share`: CPU time to the clock's, all passes."""

    values: list[float]
    cpu_share: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def disturbed(self) -> bool:
        """Whether others took a noticeable part of the core meanwhile."""
        return self.cpu_share is not None and self.cpu_share < QUIET_CPU_SHARE

    def as_json(self) -> dict[str, object]:
        """Rounded to what a measurement can tell."""
        found: dict[str, object] = {
            "median": float(f"{self.median:.4g}"),
            "low": float(f"{min(self.values):.4g}"),
            "high": float(f"{max(self.values):.4g}"),
            "passes": len(self.values),
        }
        return found | ({"cpu_share": round(self.cpu_share, 3)} if self.cpu_share else {})


@dataclass(frozen=True)
class Failure:
    """Why there is no number."""

    why: str

    def as_json(self) -> dict[str, object]:
        return {"failed": self.why}


Outcome = Numbers | Failure
Results = dict[str, Outcome]
"""By entrant's name."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """What all rows share. Each entrant has `passes` passes after a warm-up."""

    entrants: Sequence[Entrant]
    model: str
    folder: Path
    isa: str
    passes: int
    cores: Sequence[int]
    say: Callable[[str], None]

    def run(self, row: Row) -> dict[str, Results]:
        """Results by name of table row: the starts tell of memory too."""
        return self._starts(row) if row.kind == "start" else {row.name: self._passes(row)}

    def _passes(self, row: Row) -> Results:
        passes: dict[str, list[Pass]] = {entrant.name: [] for entrant in self.entrants}
        failures: Results = {}
        field: dict[str, Competitor | AntiphonServer] = {}
        try:
            for entrant in self.entrants:
                field[entrant.name] = self._enter(row, entrant)
            for number in range(self.passes + 1):
                for name in [name for name in field if name not in failures]:
                    try:
                        taken = field[name].ask(row.kind)
                    except Failed as failure:
                        failures[name] = Failure(str(failure))
                        continue
                    passes[name].append(taken)
                    self._progress(row, number, name, rate_text(row, taken) if number else "done")
        finally:
            for competitor in field.values():
                competitor.close()
        return {name: failures.get(name) or rates(row, passes[name][1:]) for name in passes}

    def _starts(self, row: Row) -> dict[str, Results]:
        """A fresh process in each pass; the first one fills the caches."""
        seconds: dict[str, list[float]] = {entrant.name: [] for entrant in self.entrants}
        megabytes: dict[str, list[float]] = {entrant.name: [] for entrant in self.entrants}
        failures: Results = {}
        for number in range(self.passes + 1):
            for entrant in [one for one in self.entrants if one.name not in failures]:
                name, competitor = entrant.name, self._enter(row, entrant)
                try:
                    competitor.ask("answer")
                    seconds[name].append(time.perf_counter() - competitor.started)
                    competitor.ask("prefill")
                    megabytes[name].append(competitor.resident_bytes / 1e6)
                    self._progress(row, number, name, f"{seconds[name][-1]:.2f} s")
                except Failed as failure:
                    failures[name] = Failure(str(failure))
                finally:
                    competitor.close()
        return {
            "start": {name: failures.get(name) or Numbers(seconds[name][1:]) for name in seconds},
            "memory": {
                name: failures.get(name) or Numbers(megabytes[name][1:]) for name in megabytes
            },
        }

    def _enter(self, row: Row, entrant: Entrant) -> Competitor | AntiphonServer:
        setup, cores = self._setup(row, entrant), self.cores[: row.cores]
        env = self._env(row)
        if entrant.peer:
            command = [
                str(python_of(entrant.peer, self.folder)),
                str(HERE / entrant.peer.script),
            ]
            return Competitor(command, setup, cores, env)
        if row.kind == "start":
            return AntiphonServer(setup, cores, env)
        return Competitor([sys.executable, str(HERE / "antiphon_engine.py")], setup, cores, env)

    def _setup(self, row: Row, entrant: Entrant) -> Setup:
        """Only a start may use a cache of compiled models: elsewhere it would change nothing."""
        cached = row.kind == "start" and entrant.peer is not None
        return Setup(
            model=self.model,
            kind=row.kind,
            threads=row.cores,
            sequences=row.sequences,
            context=row.context,
            tokens=row.tokens,
            passes=self.passes,
            quantize=entrant.quantize,
            cache=str(self.folder / f"models-{self.isa}") if cached else "",
        )

    def _env(self, row: Row) -> Mapping[str, str]:
        threads = str(row.cores)
        return ISA[self.isa] | {
            "PYTHONPATH": str(SOURCE),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
        }

    def _progress(self, row: Row, number: int, name: str, value: str) -> None:
        which = f"{number}/{self.passes}" if number else "warm-up"
        self.say(f"{row.name:10}  {which:7}  {name:16} {value}")


def rate_text(row: Row, taken: Pass) -> str:
    """For whoever watches; the share tells how much of the cores the process had."""
    share = taken.cpu_s / taken.seconds / row.cores
    return f"{row.work / taken.seconds:7.1f} tokens/s, {share:4.0%} of the cores"


def rates(row: Row, passes: Sequence[Pass]) -> Numbers:
    """Tokens per second of each pass."""
    seconds = sum(one.seconds for one in passes)
    share = sum(one.cpu_s for one in passes) / seconds / row.cores
    return Numbers([row.work / one.seconds for one in passes], share)
