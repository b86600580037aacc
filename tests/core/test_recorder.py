from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from antiphon.core.recorder import (
    Difference,
    Earlier,
    Entry,
    Raised,
    first_difference,
    recorded,
    replay,
)
from antiphon.errors import BugError, UsageError
from antiphon.types import Chunk, Request, RequestId, SamplingParams, StepPlan, StepResult


class Counting:
    """A machine small enough to see through: plans are numbered, and must come back as they are."""

    def __init__(self, first: int = 1) -> None:
        self.number = first
        self.outstanding: StepPlan | None = None
        self.size = 7

    def step(self, now: float) -> StepPlan | None:
        if now < 0:
            return None
        self.outstanding = StepPlan(number=self.number, chunks=())
        self.number += 1
        return self.outstanding

    def complete(self, plan: StepPlan, result: StepResult, now: float = 0.0) -> Sequence[int]:
        if plan is not self.outstanding:
            raise BugError("that plan is not mine")
        return [plan.number, result.number]

    def crash(self) -> None:
        raise ZeroDivisionError


METHODS = ("step", "complete", "crash")


def recording(first: int = 1) -> tuple[Counting, list[Entry]]:
    entries: list[Entry] = []
    return recorded("counting", Counting(first), METHODS, entries.append), entries


def request(**changes: object) -> Request:
    plain = Request(id=RequestId("r"), prompt=(1, 2), sampling=SamplingParams())
    return replace(plain, **changes)


def test_entries_hold_facts_by_name_and_the_decision() -> None:
    machine, entries = recording()
    plan = machine.step(now=1.5)
    result = StepResult(number=1)
    assert plan is not None
    assert machine.complete(plan, result, 2.0) == [1, 1]
    assert machine.step(-1.0) is None
    assert entries == [
        Entry(machine="counting", number=1, method="step", facts=(("now", 1.5),), decision=plan),
        Entry(
            machine="counting",
            number=2,
            method="complete",
            facts=(("plan", Earlier("step")), ("result", result), ("now", 2.0)),
            decision=(1, 1),
        ),
        Entry(machine="counting", number=3, method="step", facts=(("now", -1.0),), decision=None),
    ]
    assert list(replay(entries, {"counting": Counting()})) == []


def test_an_equal_plan_is_not_the_earlier_one() -> None:
    """Replay must hand over the very object that the run did, or a copy where it was a copy."""
    machine, entries = recording()
    machine.step(0.0)
    with pytest.raises(BugError):
        machine.complete(StepPlan(number=1, chunks=()), StepResult(number=1))
    assert entries[-1].facts[0] == ("plan", StepPlan(number=1, chunks=()))
    assert entries[-1].decision == Raised("BugError", "that plan is not mine")
    assert list(replay(entries, {"counting": Counting()})) == []


def test_only_the_named_methods_are_recorded() -> None:
    machine, entries = recording()
    assert (machine.size, machine.number) == (7, 1)
    machine.step(0.0)
    assert machine.number == 2
    assert len(entries) == 1
    with pytest.raises(AttributeError, match="nothing_like_it"):
        machine.nothing_like_it  # pyright: ignore  # noqa: B018


def test_foreign_exceptions_and_wrong_calls_are_not_decisions() -> None:
    machine, entries = recording()
    with pytest.raises(ZeroDivisionError):
        machine.crash()
    with pytest.raises(TypeError):
        machine.step()  # pyright: ignore
    assert entries == []


def test_what_write_raises_reaches_the_caller() -> None:
    def full(entry: Entry) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        recorded("counting", Counting(), METHODS, full).step(0.0)


def test_every_departing_entry_is_reported_where_it_departs() -> None:
    machine, entries = recording(first=1)
    plan = machine.step(0.0)
    assert plan is not None
    machine.complete(plan, StepResult(number=1))
    machine.step(-1.0)
    assert list(replay(entries, {"counting": Counting(first=5)})) == [
        Difference(
            machine="counting", number=1, method="step", path=".number", recorded=1, replayed=5
        ),
        Difference(
            machine="counting", number=2, method="complete", path="[0]", recorded=1, replayed=5
        ),
    ]


def test_an_exception_against_a_decision_is_a_difference() -> None:
    facts = (("plan", StepPlan(number=1, chunks=())), ("result", StepResult(number=1)))
    entry = Entry(machine="counting", number=1, method="complete", facts=facts, decision=(1, 1))
    (found,) = list(replay([entry], {"counting": Counting()}))
    assert found.path == ""
    assert found.replayed == Raised("BugError", "that plan is not mine")


@pytest.mark.parametrize(
    ("method", "facts", "message"),
    [
        ("stop", (), "entry 1: Counting has no method 'stop'"),
        ("__init__", (("first", 1),), "no method '__init__'"),
        ("number", (), "no method 'number'"),
        ("step", (), "entry 1: step: missing a required argument: 'now'"),
        ("step", (("now", 0.0), ("then", 1.0)), "unexpected keyword argument 'then'"),
        ("step", (("now", Earlier("complete")),), "a decision of 'complete': none came"),
        ("step", (("now", "soon"),), "entry 1: step: now can't be a str"),
        ("complete", (("plan", 3), ("result", StepResult(number=1))), "plan can't be a int"),
    ],
)
def test_entries_that_do_not_fit(
    method: str, facts: tuple[tuple[str, object], ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        list(
            replay(
                [Entry(machine="counting", number=1, method=method, facts=facts, decision=None)],
                {"counting": Counting()},
            )
        )


def test_machines_share_a_record_and_each_has_its_own_latest_plan() -> None:
    entries: list[Entry] = []
    one, other = (
        recorded(name, Counting(first), METHODS, entries.append)
        for name, first in (("one", 1), ("other", 10))
    )
    plans = [one.step(0.0), other.step(0.0)]
    assert plans[0] is not None and plans[1] is not None
    other.complete(plans[1], StepResult(number=1))
    one.complete(plans[0], StepResult(number=2))
    assert [(entry.machine, entry.number) for entry in entries] == [
        ("one", 1),
        ("other", 1),
        ("other", 2),
        ("one", 2),
    ]
    assert list(replay(entries, {"one": Counting(1), "other": Counting(10)})) == []
    found = next(replay(entries, {"one": Counting(1), "other": Counting(11)}))
    assert (found.machine, found.number, found.path) == ("other", 1, ".number")
    with pytest.raises(UsageError, match="no machine 'other'"):
        list(replay(entries, {"one": Counting(1)}))


@dataclass(frozen=True)
class Other:
    number: int


@pytest.mark.parametrize(
    ("left", "right", "path"),
    [
        (request(), request(prompt=(1, 3)), ".prompt[1]"),
        (request(), request(prompt=(1, 2, 3)), ".prompt"),
        (
            (
                1,
                StepPlan(
                    number=1, chunks=(Chunk(request=request(), sequence=0, tokens=(1,), start=0),)
                ),
            ),
            (
                1,
                StepPlan(
                    number=1, chunks=(Chunk(request=request(), sequence=0, tokens=(2,), start=0),)
                ),
            ),
            "[1].chunks[0].tokens[0]",
        ),
        (StepResult(number=1), Other(1), ""),
        (None, (), ""),
        (1.0, 2.0, ""),
    ],
)
def test_differences_are_found_where_they_are(left: object, right: object, path: str) -> None:
    found = first_difference(left, right)
    assert found is not None and found[0] == path
    assert first_difference(right, left) == (found[0], found[2], found[1])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (request(), request()),
        ((1, (2, None)), [1, [2, None]]),
        (float("nan"), float("nan")),
    ],
)
def test_equal_content_is_the_same(left: object, right: object) -> None:
    assert first_difference(left, right) is None
