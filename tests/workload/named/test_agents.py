from itertools import islice
from statistics import fmean

import pytest

from antiphon.workload import AnswerOf, Session, parse_workload


def some(text: str, count: int = 50, seed: int = 1) -> list[Session]:
    return list(islice(parse_workload(text).sessions(seed), count))


def test_a_plan_fans_out_and_the_writer_waits_for_all() -> None:
    sessions = some("agents:fan_out=2-4")
    assert {len(session.turns) for session in sessions} == {4, 5, 6}
    for session in sessions:
        plan, *tools, write = session.turns
        assert plan.after == ()
        assert all(tool.after == (0,) for tool in tools)
        assert write.after == tuple(range(1, len(tools) + 1))


def test_the_writer_quotes_the_plan_and_every_answer() -> None:
    for session in some("agents"):
        *others, write = session.turns
        quoted = [
            part.turn for one in write.history for part in one.parts if isinstance(part, AnswerOf)
        ]
        assert quoted == list(range(len(others)))


def test_calls_of_a_workflow_begin_alike_and_roles_take_turns() -> None:
    for session in some("agents"):
        plan, *later = session.turns
        begin = later[0].history
        assert begin[: len(plan.history)] == plan.history
        for turn in later:
            assert turn.history[: len(begin)] == begin
            roles = [message.role for message in turn.history[1:]]
            assert roles == ["user", "assistant"] * (len(roles) // 2)


def test_tools_take_time_and_return_different_things() -> None:
    sessions = some("agents:tool_gap=500ms", 500)
    tools = [turn for session in sessions for turn in session.turns[1:-1]]
    assert fmean(turn.pause_s for turn in tools) == pytest.approx(0.5, rel=0.07)
    assert len({turn.ask.text for turn in tools}) == len(tools)


def test_each_kind_of_call_may_have_its_own_model() -> None:
    (session,) = some("agents:planner_model=big,tool_model=small", 1)
    models = [turn.ask.model for turn in session.turns]
    assert models == ["big", *["small"] * (len(models) - 2), None]
    assert {turn.ask.model for turn in some("agents", 1)[0].turns} == {None}
