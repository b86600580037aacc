"""What holds for every workload, whatever its options."""

import json
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.workload import AnswerOf, Session, Turn, Workload, parse_workload
from antiphon.workload.context import quoted

EXCERPTS = Path(__file__).parents[1] / "excerpts"
ENDLESS = ("fixed", "chat", "code", "summarise", "multi-turn", "rag", "completion", "agents")
TEXTS = (
    *ENDLESS,
    "mix:chat=0.6,agents=0.3,multi-turn=0.1",
    f"trace:{EXCERPTS / 'mooncake_conversation.jsonl'}",
    f"trace:{EXCERPTS / 'azure_code.csv'}",
)
WILD = (
    "fixed:input=1-9000,output=lognormal:mean=500,sd=5000,system=300",
    "multi-turn:turns=1-1000,question=1-3000,answer=lognormal:mean=500,sd=2000",
    "rag:document=1-5000,question=normal:mean=100,sd=5000,answer=1-3000,system=300",
    "completion:file=1-9000,calls=1-200,typed=1-900,output=1-5000",
    "agents:fan_out=1-9,task=1-3000,plan=1-3000,result=1-3000,step=lognormal:mean=9,sd=999",
)
"""Lengths far above any context."""
EXAMPLES = settings(deadline=None, max_examples=25)
workloads = st.sampled_from(TEXTS).map(parse_workload)
seeds = st.integers(0, 2**40)


@st.composite
def within(draw: st.DrawFn) -> tuple[Workload, int]:
    """A workload that is made to fit a context, and that context."""
    name = draw(st.sampled_from([*ENDLESS, *WILD, "mix:chat=1,rag=1,agents=2"]))
    context = draw(st.integers(1600, 9000))
    between = "," if ":" in name else ":"
    return parse_workload(f"{name}{between}max_context={context}"), context


def some(workload: Workload, seed: int, count: int = 6) -> list[Session]:
    return list(islice(workload.sessions(seed), count))


def turns_of(sessions: list[Session]) -> Iterator[tuple[Session, int, Turn]]:
    for session in sessions:
        for place, turn in enumerate(session.turns):
            yield session, place, turn


def before(session: Session, place: int) -> set[int]:
    """The turns that have ended for certain when this one is sent."""
    earlier: set[int] = set()
    waiting = list(session.turns[place].after)
    while waiting:
        one = waiting.pop()
        if one not in earlier:
            earlier.add(one)
            waiting += session.turns[one].after
    return earlier


def total_tokens(session: Session, turn: Turn) -> int:
    """Words of the prompt, answers as long as quoted ones are taken to be, and the output."""
    total = len(turn.ask.text.split()) + turn.ask.max_tokens
    for message in turn.history:
        for part in message.parts:
            if isinstance(part, AnswerOf):
                total += quoted(session.turns[part.turn].ask.max_tokens)
            else:
                total += len(part.split())
    return total


@EXAMPLES
@given(workloads, seeds)
def test_sessions_are_a_function_of_the_seed(workload: Workload, seed: int) -> None:
    sessions = some(workload, seed)
    assert sessions
    assert sessions == some(workload, seed)
    assert sessions != some(workload, seed + 1)


@EXAMPLES
@given(workloads, seeds)
def test_sessions_and_asks_are_counted_from_0(workload: Workload, seed: int) -> None:
    sessions = some(workload, seed)
    assert [session.number for session in sessions] == list(range(len(sessions)))
    numbers = [turn.ask.number for _, _, turn in turns_of(sessions)]
    assert numbers == list(range(len(numbers)))


@EXAMPLES
@given(workloads, seeds)
def test_turns_wait_only_for_earlier_ones_and_quote_only_those(
    workload: Workload, seed: int
) -> None:
    for session, place, turn in turns_of(some(workload, seed)):
        assert all(0 <= one < place for one in turn.after)
        answers = {
            part.turn for one in turn.history for part in one.parts if isinstance(part, AnswerOf)
        }
        assert answers <= before(session, place)
        assert turn.pause_s >= 0


@EXAMPLES
@given(workloads, seeds)
def test_answers_have_a_known_length_and_no_chance(workload: Workload, seed: int) -> None:
    for session, _, turn in turns_of(some(workload, seed)):
        assert session.slo_class
        assert turn.ask.text
        assert turn.ask.ignore_eos
        assert turn.ask.max_tokens >= 1
        assert turn.ask.temperature == 0
        assert turn.ask.stream


@settings(deadline=None, max_examples=60)
@given(within(), seeds)
def test_every_call_fits_the_context(made: tuple[Workload, int], seed: int) -> None:
    workload, context = made
    for session, _, turn in turns_of(some(workload, seed, 12)):
        assert total_tokens(session, turn) <= context - 48


@pytest.mark.parametrize("name", ENDLESS)
def test_defaults_fit_a_context_of_2048_and_some_calls_use_most_of_it(name: str) -> None:
    workload = parse_workload(f"{name}:max_context=2048")
    sizes = [total_tokens(session, turn) for session, _, turn in turns_of(some(workload, 1, 300))]
    assert max(sizes) <= 2000
    if name not in ("fixed", "code"):
        assert max(sizes) > 1300


@pytest.mark.parametrize("name", ENDLESS)
def test_a_context_that_nothing_fits_is_refused(name: str) -> None:
    long = {"chat": "input=90", "code": "input=90", "completion": "file=90"}.get(name, "system=90")
    with pytest.raises(UsageError, match=f"^{name}: max_context is 128, but its shortest calls"):
        parse_workload(f"{name}:max_context=128,{long}")


@pytest.mark.parametrize("name", ENDLESS)
def test_no_two_sessions_begin_alike_by_chance(name: str) -> None:
    """So that a prefix cache finds what a workload says is shared, and nothing else."""
    sessions = some(parse_workload(f"{name}:max_context=4096"), 3, 100)
    if name == "rag":
        return  # documents are shared: see its own tests
    begins = {tuple(session.turns[0].ask.text.split()[:4]) for session in sessions}
    assert len(begins) == len(sessions)


def test_sessions_are_made_as_they_are_asked_for() -> None:
    tracemalloc.start()
    try:
        for text in ("fixed:input=200", "agents"):
            for session in islice(parse_workload(text).sessions(1), 500):
                assert session.turns
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: Path(text).name)
def test_these_are_the_sessions_on_every_machine(text: str) -> None:
    """Pauses are rounded: the last bit of a logarithm is the machine's own."""
    said: list[object] = []
    for _, _, turn in turns_of(some(parse_workload(text), 1, 5)):
        history = [(message.role, *map(str, message.parts)) for message in turn.history]
        ask, pause_s = turn.ask, round(turn.pause_s, 6)
        said.append([ask.text, ask.max_tokens, ask.seed, turn.after, pause_s, *history])
    digest = sha256(json.dumps(said).encode()).hexdigest()[:12]
    assert digest == FROZEN[Path(text).name]


FROZEN = {
    "fixed": "e9cb99dd4b28",
    "chat": "c6a5be889ef4",
    "code": "0c1ec06a866f",
    "summarise": "cf5fea13e203",
    "multi-turn": "fdcaa6b0c5fd",
    "rag": "80826dd9eec6",
    "completion": "1dee4c75461e",
    "agents": "2a5090d16ac5",
    "mix:chat=0.6,agents=0.3,multi-turn=0.1": "efc5efaf060e",
    "mooncake_conversation.jsonl": "4de74c7a4a61",
    "azure_code.csv": "ef150db4e948",
}
"""Change one only with what it freezes: results of before can't be compared with those of after."""
