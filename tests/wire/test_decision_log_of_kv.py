"""What a router heard of KV is in the log, so that a replay routes alike."""

from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO

from antiphon.core.kv import BlockKeys
from antiphon.core.recorded_run import Setup, fresh_machines, router_of
from antiphon.core.recorder import Entry, recorded, replay
from antiphon.core.requests import BOOK, BOOK_METHODS, RequestBook
from antiphon.core.router import KV_METHODS, ROUTER, Router
from antiphon.perf import read_times
from antiphon.types import (
    STORE,
    BlockKey,
    Config,
    Dispatch,
    Fetched,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    KvShape,
    ModelInfo,
    Request,
    RequestId,
    SamplingParams,
    Tier,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
)
from antiphon.wire import DecisionLogWriter, read_decision_log

MODEL = ModelInfo(
    name="m",
    identity=bytes(32),
    numerics="x",
    vocab_size=100,
    context_len=8192,
    eos_token_ids=(),
    kv_bytes_per_token=23_040,
)
SETUP = Setup(
    program="0", config=Config(), pages=0, model=MODEL, max_model_len=8192, worker=None, times=""
)
PROMPT, OTHER = tuple(range(1000)), tuple(range(1000, 2000))
LIFE = Incarnation("life")


def worker(name: str) -> WorkerInfo:
    shape = KvShape(layout="l", page_tokens=16, block_tokens=64, page_bytes=368_640, pages=1000)
    return WorkerInfo(
        id=WorkerId(name),
        incarnation=LIFE,
        model=MODEL,
        max_model_len=8192,
        kv=shape,
    )


def keys(prompt: tuple[int, ...] = PROMPT) -> list[BlockKey]:
    made: list[BlockKey] = []
    BlockKeys(identity=MODEL.identity, numerics=MODEL.numerics).extend(made, prompt, 15)
    return made


def dispatched(
    book: RequestBook, name: str, now: float, prompt: tuple[int, ...] = PROMPT
) -> Dispatch:
    sampling = SamplingParams(max_tokens=10, seed=0)
    asked = Request(id=RequestId(name), prompt=prompt, sampling=sampling)
    (found,) = [one for one in book.start(asked, now) if isinstance(one, Dispatch)]
    return found


def written() -> bytes:
    """The log of a gateway: a fetch fails slowly, so that the next one is not made; a prompt goes
    where it then is."""
    file = BytesIO()
    log = DecisionLogWriter(file)
    log.begin(SETUP)
    made: Router = router_of(SETUP.config, MODEL, read_times("", step_tokens=512))
    book = recorded(BOOK, RequestBook(made), BOOK_METHODS, log)
    told = recorded(ROUTER, made, KV_METHODS, log)
    for name in ("a", "b"):
        book.observe(WorkerJoined(worker(name)), 0.0)
    stored = tuple((key, Tier.HOST) for key in (*keys(), *keys(OTHER)))
    dump = KvDump(next=0, begins=True, ends=True, blocks=stored)
    assert told.heard_kv(STORE, LIFE, dump, 0.0) is None
    told.heard_peer_time(STORE, 0.001, 0.5)
    first = dispatched(book, "r1", 1.0)
    assert first.fetch == 960
    late = Fetched(
        request=RequestId("r1"), attempt=1, fetched_tokens=0, missing_tokens=960, seconds=5.0
    )
    book.heard(late, 6.0)
    assert dispatched(book, "slow", 6.0, OTHER).fetch == 0
    changes = tuple(KvChange(key, Tier.DEVICE, True) for key in keys())
    assert told.heard_kv(first.worker, LIFE, KvEvents(first=3, changes=()), 6.0) == KvReplay(0)
    assert told.heard_kv(first.worker, LIFE, KvEvents(first=0, changes=changes), 6.1) is None
    second = dispatched(book, "r2", 6.2)
    assert (second.worker, second.fetch) == (first.worker, 0)
    told.heard_peer_time(STORE, None, 6.9)
    told.kv_holder_left(STORE, 7.0)
    assert dispatched(book, "r3", 7.1).fetch == 0
    return file.getvalue()


def differences(entries: Iterable[Entry]) -> int:
    machines = fresh_machines(SETUP, read_times("", step_tokens=512))
    return len(list(replay(entries, machines)))


def test_a_gateway_that_fetched_is_replayed() -> None:
    run = read_decision_log(written().splitlines())
    assert run.setup == SETUP
    entries = list(run.entries)
    assert {entry.machine for entry in entries} == {BOOK, ROUTER}
    assert differences(entries) == 0


def test_control_a_replay_that_hears_nothing_of_kv_differs() -> None:
    entries = list(read_decision_log(written().splitlines()).entries)
    assert differences(entry for entry in entries if entry.machine != ROUTER) > 0


def test_control_a_replay_with_a_quick_fetch_differs() -> None:
    entries = list(read_decision_log(written().splitlines()).entries)
    quick = (
        replace(entry, facts=tuple((name, _quick(value)) for name, value in entry.facts))
        for entry in entries
    )
    assert differences(quick) > 0


def _quick(value: object) -> object:
    return replace(value, seconds=0.001) if isinstance(value, Fetched) else value
