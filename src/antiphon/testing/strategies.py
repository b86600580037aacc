"""Hypothesis strategies: requests, configurations and whole workloads that are small but nasty.

Prompts come from few tokens and few prefixes, so that the prefix cache hits; memory is small, so
that sequences wait and are preempted; times collide, so that order matters.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from antiphon.core.kv import KvListener, Match, entry_pages, ignore
from antiphon.core.scheduler import STANDARD_PARTS, Parts, Scheduler
from antiphon.core.scheduler.admission import Admission, Crowd
from antiphon.core.scheduler.sequence import SequenceState
from antiphon.core.scheduler.windowed_admission import WindowedAdmission
from antiphon.sim import Cancel, ShadowKv, Submit
from antiphon.types import (
    KvConfig,
    KvGroup,
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    SchedulerConfig,
    Seconds,
    TokenId,
)

VOCAB_SIZE = 16
CONTEXT_LEN = 64
EOS: TokenId = 0

MODEL = ModelInfo(
    name="scripted",
    identity=bytes(32),
    numerics="scripted",
    vocab_size=VOCAB_SIZE,
    context_len=CONTEXT_LEN,
    eos_token_ids=(EOS,),
    kv_bytes_per_token=1,
)


class Hopeful(Admission):
    """Does not look ahead: whoever finds pages now starts, and many are preempted."""

    def short_of_memory(
        self,
        candidate: SequenceState,
        match: Match,
        running: Collection[SequenceState],
        crowd: Crowd,
    ) -> None:
        """Never holds anybody back."""


class HopefulOfWindows(WindowedAdmission):
    """`Hopeful`, for models with sliding windows."""

    short_of_memory = Hopeful.short_of_memory


HOPEFUL_PARTS = Parts(admission=Hopeful, windowed_admission=HopefulOfWindows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """All that a `Scheduler` is built from, but the model."""

    config: SchedulerConfig
    kv: KvConfig
    pages: int
    max_model_len: int = CONTEXT_LEN
    parts: Parts = STANDARD_PARTS
    most_repeats: int = 1
    groups: tuple[KvGroup, ...] = (KvGroup(),)

    @property
    def model(self) -> ModelInfo:
        """`MODEL`, with these groups of layers."""
        return replace(MODEL, kv_groups=self.groups)

    def shadow(self) -> ShadowKv:
        """KV memory that checks what is read, fresh."""
        return ShadowKv(self.kv.page_tokens, self.groups)

    def build(self, listen: KvListener = ignore) -> Scheduler:
        """A new scheduler of `MODEL`."""
        return Scheduler(
            config=self.config,
            kv=self.kv,
            pages=self.pages,
            model=self.model,
            max_model_len=self.max_model_len,
            listen=listen,
            most_repeats=self.most_repeats,
            parts=self.parts,
        )


def kv_configs() -> st.SearchStrategy[KvConfig]:
    """Blocks of 1 to 8 tokens, in pages of every size that divides them."""
    return st.sampled_from([1, 2, 4, 8]).flatmap(
        lambda block: st.builds(
            KvConfig,
            page_tokens=st.sampled_from([size for size in (1, 2, 4, 8) if block % size == 0]),
            block_tokens=st.just(block),
            prefix_cache=st.sampled_from([True, True, True, False]),
        )
    )


def kv_groups() -> st.SearchStrategy[tuple[KvGroup, ...]]:
    """All layers see all; or all, or some, see through windows of one or two sizes."""
    window = st.builds(KvGroup, st.sampled_from([1, 2, 5, 8, 13]), st.integers(1, 2))
    plain = st.just((KvGroup(),))
    mixed = st.lists(window, min_size=1, max_size=2).map(lambda some: (KvGroup(), *some))
    return st.one_of(plain, plain, st.tuples(window), mixed)


@st.composite
def worker_setups(draw: st.DrawFn, *, min_tokens: int = 12, max_tokens: int = 160) -> WorkerSetup:
    """A worker whose memory holds one long sequence, or several, or dozens of short ones."""
    kv = draw(kv_configs())
    memory_tokens = draw(st.integers(min_tokens, max_tokens))
    setup = WorkerSetup(
        config=SchedulerConfig(
            max_num_seqs=draw(st.integers(1, 8)),
            max_batched_tokens=draw(st.integers(1, 24)),
            max_queue=draw(st.sampled_from([2, 100])),
            output_quantile=draw(st.sampled_from([0.0, 0.5, 0.9])),
            output_history=draw(st.sampled_from([1, 4, 100])),
            reserve_fraction=draw(st.sampled_from([0.0, 0.03, 0.3])),
        ),
        kv=kv,
        pages=max(2, -(-memory_tokens // kv.page_tokens)),
        max_model_len=draw(st.sampled_from([8, 32, CONTEXT_LEN])),
        parts=draw(st.sampled_from([STANDARD_PARTS, HOPEFUL_PARTS])),
    )
    groups = draw(kv_groups())
    return replace(setup, groups=groups, pages=setup.pages * entry_pages(groups))


@st.composite
def prompts(draw: st.DrawFn, *, max_len: int = 40) -> tuple[TokenId, ...]:
    """Tokens that often begin as other prompts do."""
    prefix = draw(st.sampled_from([(), (1, 2, 3, 4) * 3, (1, 2, 3, 4) * 6, (5,) * 17]))
    own = draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    return (*prefix, *own)[:max_len]


@st.composite
def requests(draw: st.DrawFn, *, id: str = "r0", now: Seconds = 0.0) -> Request:
    """A valid request; some are resumed, some have several sequences, some a deadline."""
    n = draw(st.sampled_from([1, 1, 1, 2, 3]))
    tokens = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=6).map(tuple)
    resumed = draw(st.sampled_from([False, False, False, True]))
    wait_s = draw(st.sampled_from([None, None, None, 0.0, 0.05, 0.3, 1.0]))
    return Request(
        id=RequestId(id),
        prompt=draw(prompts()),
        sampling=SamplingParams(
            n=n,
            max_tokens=draw(st.integers(0, 24)),
            min_tokens=draw(st.sampled_from([0, 0, 3])),
            stop_token_ids=draw(st.sampled_from([(), (7,)])),
            seed=draw(st.integers(0, 3)),
        ),
        eos_token_ids=draw(st.sampled_from([(), (EOS,)])),
        attempt=2 if resumed else 1,
        resumed=tuple(draw(tokens) for _ in range(n)) if resumed else (),
        done=draw(st.sampled_from([(), (0,), (n - 1,)])) if resumed and n > 1 else (),
        priority=draw(st.sampled_from([0, 0, 1])),
        deadline=None if wait_s is None else now + wait_s,
        tenant_salt=draw(st.sampled_from([b"", b"", b"other"])),
    )


def fetches() -> st.SearchStrategy[int]:
    """What a gateway believes to be in the store: often nothing, often more than can be."""
    return st.sampled_from([0, 0, 3, 8, 12, 24, 1000])


def losses() -> st.SearchStrategy[list[frozenset[int]]]:
    """The blocks, by number, that are lost in the first fetches: one set a fetch."""
    return st.lists(st.frozensets(st.integers(0, 6), max_size=2), max_size=8)


@st.composite
def workloads(
    draw: st.DrawFn, *, max_requests: int = 12, patient: bool = False, fetching: bool = False
) -> list[Submit | Cancel]:
    """Requests over half a second of virtual time, some of them given up later.

    `patient`: nobody gives up and nothing has a deadline, so every request runs to its end.
    `fetching`: some of them may take their beginning from the store.
    """
    stimuli: list[Submit | Cancel] = []
    for number in range(draw(st.integers(1, max_requests))):
        at = draw(st.integers(0, 10)) * 0.05
        request = draw(requests(id=f"r{number}", now=at))
        if patient:
            request = replace(request, deadline=None)
        stimuli.append(Submit(at, request, draw(fetches()) if fetching else 0))
        if not patient and draw(st.sampled_from([False, False, True])):
            after_s = draw(st.sampled_from([0.0, 0.01, 0.025, 0.1, 0.4]))
            which = draw(st.sampled_from([None, 0, 1, 2]))
            stimuli.append(Cancel(at + after_s, request.id, which))
    return stimuli
