import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.recorded_run import Setup, fresh_machines
from antiphon.core.recorder import Entry, first_difference, recorded, replay
from antiphon.core.requests import BOOK, BOOK_METHODS, RequestBook, SoleWorker
from antiphon.errors import BugError, UsageError
from antiphon.perf import read_times
from antiphon.testing.strategies import MODEL
from antiphon.types import (
    Admitted,
    Adopt,
    Config,
    Deliver,
    Dispatch,
    FinishReason,
    Grant,
    GrantAnswered,
    Health,
    HealthChanged,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    KvReplay,
    KvShape,
    LeaseId,
    Offer,
    OfferedPage,
    OfferedSequence,
    Pulled,
    Renew,
    Request,
    RequestId,
    Role,
    SamplingParams,
    SequenceEnded,
    SequenceKey,
    Settle,
    Stage,
    Tier,
    TokenGenerated,
    WorkerId,
    WorkerInfo,
    WorkerJoined,
    WorkerReported,
    WorkerView,
)
from antiphon.wire import DecisionLogWriter, read_decision_log
from antiphon.wire.decision_log import KINDS

SETUP = Setup(
    program="0.0.1",
    config=Config(),
    pages=40,
    model=MODEL,
    max_model_len=32,
    worker=WorkerId("w0"),
)


def written(*entries: Entry) -> bytes:
    file = io.BytesIO()
    write = DecisionLogWriter(file)
    write.begin(SETUP)
    for entry in entries:
        write(entry)
    return file.getvalue()


HEADER = written()


def read(log: bytes) -> list[Entry]:
    return list(read_decision_log(io.BytesIO(log), "a.log").entries)


def entry(decision: object, **facts: object) -> Entry:
    return Entry(
        machine="book", number=1, method="step", facts=tuple(facts.items()), decision=decision
    )


def request(id: str, prompt: tuple[int, ...] = (1, 2, 3)) -> Request:
    return Request(id=RequestId(id), prompt=prompt, sampling=SamplingParams(seed=1))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text()
    | st.sampled_from(sorted(KINDS)).flatmap(lambda name: st.from_type(KINDS[name])),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(values, values), max_size=4))
def test_what_is_written_is_read(pairs: list[tuple[object, object]]) -> None:
    entries = [entry(decision, fact=fact) for fact, decision in pairs]
    back = read(written(*entries))
    assert first_difference(entries, back) is None
    for ours, theirs in zip(entries, back, strict=True):
        assert type(ours.decision) is type(theirs.decision)


def new_book() -> RequestBook:
    return RequestBook(SoleWorker(WorkerId("w0")))


def run(write: Callable[[Entry], None]) -> None:
    """A request with two sequences: a stop string, a late token, and a plain end."""
    book = recorded(BOOK, new_book(), BOOK_METHODS, write)
    asked = Request(
        id=RequestId("r1"), prompt=(1, 2), sampling=SamplingParams(n=2, max_tokens=2, seed=0)
    )
    info = WorkerInfo(
        id=WorkerId("w0"), incarnation=Incarnation("i0"), model=MODEL, max_model_len=32
    )
    book.observe(WorkerJoined(info), 0.0)
    book.start(asked, 0.0)
    book.heard(Admitted(request=asked.id), 0.1)
    for index, sequence in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)):
        token = TokenGenerated(
            request=asked.id, attempt=1, sequence=sequence, index=index, token=40 + index
        )
        book.heard(token, 0.2 + index)
        if (index, sequence) == (1, 0):
            book.cancel(asked.id, 1.3, sequence=0, reason=FinishReason.STOP)
    ended = SequenceEnded(request=asked.id, attempt=1, sequence=1, reason=FinishReason.LENGTH)
    book.heard(ended, 4.0)
    book.due(5.0)


def test_a_log_on_disk_replays_to_the_same_decisions(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with path.open("wb") as file:
        writer = DecisionLogWriter(file)
        writer.begin(SETUP)
        run(writer)
    with path.open("rb") as file:
        log = read_decision_log(file, str(path))
        assert log.setup == SETUP
        entries = list(log.entries)
    assert len(entries) == 11
    assert list(replay(entries, fresh_machines(log.setup))) == []


def test_one_changed_token_is_found() -> None:
    """In a decision the replay departs there; in a fact it departs in what follows from it."""
    file = io.BytesIO()
    writer = DecisionLogWriter(file)
    writer.begin(SETUP)
    run(writer)
    lines = file.getvalue().splitlines(keepends=True)
    changed = 0
    for place, line in enumerate(lines):
        tampered = line.replace(b'"token":40', b'"token":99', 1)
        if tampered == line:
            continue
        changed += 1
        log = b"".join([*lines[:place], tampered, *lines[place + 1 :]])
        differences = list(replay(read(log), {BOOK: new_book()}))
        assert [found.number for found in differences] == [place]
        assert differences[0].path == "[0].token.token"
        assert {differences[0].recorded, differences[0].replayed} == {40, 99}
    assert changed == 2


def test_a_request_is_written_in_full_once() -> None:
    asked = request("r1", tuple(range(1000, 2000)))
    log = written(entry(asked), entry((asked, asked)), entry(request("r1", (7,))), entry(asked))
    sizes = [len(line) for line in log.splitlines()]
    assert sizes[2] < 300 < 5000 < sizes[1]
    assert sizes[3] < 700 and sizes[4] > 5000, "the same id with other content is another request"
    back = read(log)
    assert first_difference(back[1].decision, (asked, asked)) is None
    assert first_difference(back[2].decision, request("r1", (7,))) is None
    assert first_difference(back[3].decision, asked) is None


def test_writer_and_reader_forget_the_same_requests() -> None:
    many = [request(f"r{number}") for number in range(1500)]
    entries = [entry(asked) for asked in (*many, *many[::100], *many[-30:])]
    assert first_difference(read(written(*entries)), entries) is None


def line(**changes: object) -> bytes:
    plain = {"machine": "book", "number": 1, "method": "step", "facts": {}, "decision": None}
    return msgspec.json.encode(plain | changes) + b"\n"


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (b"", "a.log: line 1: the header is missing"),
        (b"garbage\n", "a.log: line 1: "),
        (b'{"log":"other","version":2}\n', "line 1: not a decision log: 'other'"),
        (b'{"log":"antiphon-decisions","version":1}\n', "line 1: version 1, but .* reads 2"),
        (b'{"log":"antiphon-decisions","version":2}\n', "line 1: .*missing required field `setup`"),
        (HEADER.replace(b'"pages":40', b'"pages":"40"'), r"line 1: Expected `int`.*setup.pages"),
        (HEADER + line()[:-9], "line 2: .* truncated"),
        (HEADER + line() + b"\n", "line 3: "),
        (HEADER + b"[]\n", "line 2: Expected `object`"),
        (HEADER + line(number="1"), r"line 2: Expected `int`, got `str` - at `\$.number`"),
        (HEADER + line(extra=1), "line 2: .*unknown field `extra`"),
        (HEADER + line(decision={"kind": "Nonsense", "value": {}}), "unknown kind 'Nonsense'"),
        (HEADER + line(decision={"kind": ["Abort"], "value": {}}), r"unknown kind \['Abort'\]"),
        (HEADER + line(decision={"kind": "Abort"}), r"kind and value, not \['kind'\]"),
        (HEADER + line(decision={"kind": "Abort", "value": {}}), "line 2: Object missing required"),
        (HEADER + line(decision={"kind": "FinishReason", "value": "?"}), "Invalid enum value"),
        (
            HEADER + line(decision={"kind": "Request", "value": {"ref": ["r1", 1]}}),
            "line 2: request 'r1', attempt 1, was not written before",
        ),
        (HEADER + line(decision={"kind": "Request", "value": {}}), "needs an id and an attempt"),
        (HEADER + line(decision={"kind": "Request", "value": 1}), "needs an id and an attempt"),
        (HEADER + line(decision={"float": "1e5"}), "line 2: .*float"),
        (HEADER + line(decision={"float": "nan", "x": 1}), "line 2: "),
        (HEADER + line(decision=None)[:-6] + b"[" * 100_000 + b"\n", "line 2: "),
    ],
)
def test_a_malformed_line_is_named(log: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(log)


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1}, b"raw", Entry])
def test_what_no_log_can_hold_is_refused(value: object) -> None:
    with pytest.raises(BugError, match=f"can't hold a {type(value).__name__}"):
        written(entry(value))


def test_nothing_is_written_before_the_header() -> None:
    with pytest.raises(BugError, match="header"):
        DecisionLogWriter(io.BytesIO())(entry(None))


def test_news_of_kv_come_back_as_they_were() -> None:
    """Routes follow blocks: what the router heard of them is a part of the record."""
    keys = (bytes(range(32)), bytes(32))
    dump = KvDump(next=7, begins=True, ends=True, blocks=((keys[0], Tier.HOST),))
    changes = KvEvents(first=7, changes=(KvChange(keys[1], Tier.DEVICE, False),))
    heard = [entry(None, message=dump), entry(KvReplay(3), message=changes)]
    assert read(written(*heard)) == heard


def test_the_salt_is_in_the_record_since_keys_follow_from_it() -> None:
    request = Request(
        id=RequestId("r"), prompt=(1,), sampling=SamplingParams(seed=1), tenant_salt=b"a digest"
    )
    [back] = read(written(entry(None, request=request)))
    assert dict(back.facts)["request"].tenant_salt == b"a digest"  # type: ignore[attr-defined]


def test_the_table_covers_the_vocabulary() -> None:
    assert {"Request", "StepPlan", "StepResult", "WorkerView", "Earlier", "Raised"} <= KINDS.keys()
    assert KINDS["SequenceKey"] is SequenceKey


def test_the_log_of_a_cluster_replays_with_its_router() -> None:
    """A split request whose decode worker dies: routes, offers and attempts come out the same."""
    setup = replace(SETUP, worker=None, pages=0)
    times = read_times("", step_tokens=setup.config.scheduler.max_batched_tokens)
    file = io.BytesIO()
    writer = DecisionLogWriter(file)
    writer.begin(setup)
    machines = fresh_machines(setup, times)
    drive_cluster(recorded(BOOK, cast(RequestBook, machines[BOOK]), BOOK_METHODS, writer))
    run = read_decision_log(io.BytesIO(file.getvalue()), "a.log")
    entries = list(run.entries)
    told = [
        type(command) for entry in entries for command in cast(tuple[object, ...], entry.decision)
    ]
    assert {Dispatch, Grant, Adopt, Renew, Deliver, Settle} <= set(told)
    assert list(replay(entries, fresh_machines(run.setup, times))) == []


def drive_cluster(book: RequestBook) -> None:
    kv = KvShape(layout="rows", page_tokens=2, block_tokens=4, page_bytes=8, pages=1000)
    infos = {
        WorkerId(name): WorkerInfo(
            id=WorkerId(name),
            incarnation=Incarnation(f"{name}-1"),
            model=MODEL,
            max_model_len=1024,
            role=role,
            kv=kv,
        )
        for name, role in (("p", Role.PREFILL), ("d", Role.DECODE), ("e", Role.DECODE))
    }
    counts: dict[str, Any] = dict.fromkeys(WorkerView.__dataclass_fields__, 0) | {
        "expert_tokens": None,
        "links": None,
    }
    view = WorkerView(**counts)
    idle = replace(view, free_pages=1000, total_pages=1000)
    for info in infos.values():
        book.observe(WorkerJoined(info), 0.0)
        book.observe(WorkerReported(info.id, idle), 0.0)
    asked = replace(request("r1", tuple(range(1, 301))), eos_token_ids=(6,))
    (dispatch,) = book.start(asked, 0.1)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.stage is Stage.PREFILL
    book.heard(TokenGenerated(request=asked.id, attempt=1, sequence=0, index=0, token=5), 0.2)
    offer = Offer(
        request=asked.id,
        attempt=1,
        lease=LeaseId("lease"),
        ttl_s=3.0,
        owner=WorkerId("p"),
        incarnation=infos[WorkerId("p")].incarnation,
        kv=kv,
        numerics=MODEL.numerics,
        pages=(OfferedPage(0, 2, 1),),
        sequences=(OfferedSequence(0, len(asked.prompt), (0,)),),
    )
    (grant,) = book.heard(offer, 0.3)
    assert isinstance(grant, Grant)
    (adopt,) = book.heard(answered(grant), 0.4)
    assert isinstance(adopt, Adopt)
    book.due(1.5)
    (grant,) = book.observe(HealthChanged(adopt.worker, Health.LOST), 1.6)
    assert isinstance(grant, Grant)
    assert grant.taker != adopt.worker
    book.heard(answered(grant), 1.7)
    book.heard(Pulled(request=asked.id, attempt=2, pulled_tokens=300, cached_tokens=0), 1.8)
    book.heard(TokenGenerated(request=asked.id, attempt=2, sequence=0, index=1, token=6), 1.9)
    book.heard(
        SequenceEnded(request=asked.id, attempt=2, sequence=0, reason=FinishReason.STOP), 1.9
    )


def answered(grant: Grant) -> GrantAnswered:
    return GrantAnswered(request=grant.request, attempt=grant.attempt, lease=grant.lease)
