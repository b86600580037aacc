"""A minimal scheduler for the engine's tests: chunked prefill, forks, decodes, all ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from antiphon.engine.kv_memory import KvDtype, KvMemory, layout_of
from antiphon.engine.model import Model
from antiphon.engine.torch_engine import TorchEngine
from antiphon.types import (
    Chunk,
    PageCopy,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    SequenceFault,
    SequenceKey,
    StepPlan,
    StepResult,
)


def request_of(name: str, prompt: Iterable[int], **params: object) -> Request:
    defaults = {"temperature": 0.0, "seed": 1, "max_tokens": 8}
    sampling = SamplingParams(**defaults | params)  # type: ignore[arg-type]
    return Request(id=RequestId(name), prompt=tuple(prompt), sampling=sampling)


@dataclass(slots=True)
class Track:
    """One sequence as the driver sees it; `tokens` = prompt and outputs."""

    request: Request
    sequence: int
    tokens: list[int]
    table: list[int] = field(default_factory=list)
    computed: int = 0
    told: int = 0
    """Table entries that the engine knows."""
    fault: SequenceFault | None = None

    @property
    def key(self) -> SequenceKey:
        return SequenceKey(self.request.id, self.sequence)

    @property
    def outputs(self) -> list[int]:
        return self.tokens[len(self.request.prompt) :]

    @property
    def finished(self) -> bool:
        return self.fault is not None or len(self.outputs) >= self.request.sampling.max_tokens


class Driver:
    """Runs requests on a `TorchEngine`, `chunk` prompt tokens a step for each sequence."""

    def __init__(
        self,
        model: Model,
        *,
        page_tokens: int = 16,
        pages: int = 200,
        seed: int = 0,
        kv_dtype: KvDtype = KvDtype.FP32,
    ) -> None:
        self.memory = KvMemory(layout_of(model.spec, page_tokens, kv_dtype), pages)
        self.memory.flat.fill_(float("nan"))
        self.engine = TorchEngine(model, self.memory)
        self.free = np.random.default_rng(seed).permutation(pages).tolist()
        self.samples: dict[tuple[SequenceKey, int], Sample] = {}
        self.results: list[StepResult] = []
        self._numbers = count()
        self._copies: list[PageCopy] = []

    def run(self, requests: Iterable[Request], chunk: int = 1000) -> dict[SequenceKey, Track]:
        """All requests to their `max_tokens`, together; then the engine is told that they ended."""
        tracks = {track.key: track for request in requests for track in self.start(request)}
        while active := [track for track in tracks.values() if not track.finished]:
            self.step(active, tracks, chunk)
        self.end(tracks.values())
        return tracks

    def start(self, request: Request) -> list[Track]:
        """Sequences that compute something; those that fork from the prompt come later."""
        if request.resumed:
            return [
                Track(request, number, [*request.prompt, *outputs])
                for number, outputs in enumerate(request.resumed)
            ]
        return [Track(request, 0, list(request.prompt))]

    def step(
        self, active: list[Track], tracks: dict[SequenceKey, Track], chunk: int = 1000
    ) -> StepResult:
        chunks = tuple(self._chunk(track, chunk) for track in active)
        plan = StepPlan(number=next(self._numbers), chunks=chunks, copies=tuple(self._copies))
        self._copies.clear()
        result = self.engine.forward(plan)
        assert result.number == plan.number
        self.results.append(result)
        wanted = [SequenceKey(c.request.id, s) for c in chunks for s in c.samples]
        found = [SequenceKey(r.request, r.sequence) for r in (*result.samples, *result.faults)]
        assert sorted(found) == sorted(wanted)
        owners = {
            SequenceKey(c.request.id, s): t
            for c, t in zip(chunks, active, strict=True)
            for s in c.samples
        }
        for sample in result.samples:
            key = SequenceKey(sample.request, sample.sequence)
            if key not in tracks:
                tracks[key] = self._fork(owners[key], sample.sequence)
        for sample in result.samples:
            track = tracks[SequenceKey(sample.request, sample.sequence)]
            self.samples[track.key, len(track.outputs)] = sample
            track.tokens.append(sample.token)
        for fault in result.faults:
            tracks[SequenceKey(fault.request, fault.sequence)].fault = fault
        return result

    def end(self, tracks: Iterable[Track]) -> None:
        """Tell the engine to forget these sequences."""
        ended = tuple(track.key for track in tracks)
        self.engine.forward(StepPlan(number=next(self._numbers), chunks=(), ended=ended))

    def preempt(self, track: Track, keep_pages: int) -> None:
        """Give the pages back, then match the first `keep_pages` again, as a prefix hit would."""
        size = self.memory.layout.page_tokens
        track.table = track.table[:keep_pages]
        track.computed = min(keep_pages * size, len(track.tokens) - 1)
        track.told = 0

    def _chunk(self, track: Track, most: int) -> Chunk:
        request, size = track.request, self.memory.layout.page_tokens
        tokens = tuple(track.tokens[track.computed : track.computed + most])
        end = track.computed + len(tokens)
        while len(track.table) * size < end:
            track.table.append(self.free.pop())
        complete = end == len(track.tokens)
        forks = complete and not request.resumed and not track.outputs
        siblings = tuple(range(request.sampling.n)) if forks else (track.sequence,)
        chunk = Chunk(
            request=request,
            sequence=track.sequence,
            tokens=tokens,
            start=track.computed,
            page_start=track.told,
            new_pages=tuple(track.table[track.told :]),
            samples=siblings if complete else (),
            index=len(track.outputs),
        )
        track.computed, track.told = end, len(track.table)
        return chunk

    def _fork(self, leader: Track, sequence: int) -> Track:
        """Share the prompt's whole pages and copy its last, incomplete one."""
        prompt, size = leader.request.prompt, self.memory.layout.page_tokens
        table = leader.table[: len(prompt) // size]
        if len(prompt) % size:
            table.append(self.free.pop())
            self._copies.append(PageCopy(leader.table[len(table) - 1], table[-1]))
        return Track(leader.request, sequence, list(prompt), table, computed=len(prompt))


def resumed(request: Request, *outputs: Iterable[int]) -> Request:
    """The next attempt at a request whose sequences had said `outputs` when they were cut off."""
    return replace(request, attempt=2, resumed=tuple(map(tuple, outputs)))
