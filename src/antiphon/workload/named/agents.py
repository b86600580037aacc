"""An agent at work: one call plans, several use tools side by side, one writes the result.

plan ──► tool gap ──► use ──┐
    └──► tool gap ──► use ──┼──► write
    └──► tool gap ──► use ──┘
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

from antiphon.core.draws import Draws
from antiphon.types import Seconds

from ..chance import exponential
from ..context import DEFAULT_CONTEXT, MaxContext, check_room, quoted, room
from ..known_length import known_length
from ..lengths import Lengths, UniformLength, fixed_length
from ..numbering import numbered
from ..options import Option, check, duration_text
from ..prompt_text import text
from ..sessions import AnswerOf, Message, Session, Turn

NAME = "agents"
_FAN_OUT = UniformLength(2, 4)
_TASK = UniformLength(40, 120)
_PLAN = UniformLength(64, 128)
_RESULT = UniformLength(50, 300)
_STEP = UniformLength(32, 96)
_WRITE = UniformLength(100, 250)
_WRITE_ORDER = fixed_length(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Workflows. All calls begin alike: system prompt with tools, task, plan.

    Calls of tools start once the plan is there and the tool has run (exponential gaps); the writer
    sees their results and the answers to them. Tools' results are cut to fit `max_context`.
    """

    fan_out: Annotated[Lengths, Option("calls side by side")] = _FAN_OUT
    task: Annotated[Lengths, Option("tokens of the task")] = _TASK
    plan: Annotated[Lengths, Option("tokens of the plan")] = _PLAN
    result: Annotated[Lengths, Option("tokens that a tool returns")] = _RESULT
    step: Annotated[Lengths, Option("tokens of the answer to a tool's result")] = _STEP
    write: Annotated[Lengths, Option("tokens of the final text")] = _WRITE
    tool_gap_s: Annotated[Seconds, Option("mean time that a tool takes", high=86400)] = 1.0
    system: Annotated[
        int, Option("tokens of the system prompt that describes the tools", high=2**20)
    ] = 200
    planner_model: Annotated[str | None, Option("model that plans")] = None
    tool_model: Annotated[str | None, Option("model that uses tools")] = None
    writer_model: Annotated[str | None, Option("model that writes")] = None
    max_context: MaxContext = DEFAULT_CONTEXT

    def __post_init__(self) -> None:
        check(self, NAME)
        most = self.fan_out.high
        each = self.result.low + quoted(self.step.high)
        needed = self.task.high + quoted(self.plan.high) + most * each
        needed += _WRITE_ORDER.high + self.write.high
        check_room(NAME, needed, self._room(most), self.max_context)

    @property
    def description(self) -> str:
        """See `Workload`."""
        named = (self.planner_model, self.tool_model, self.writer_model)
        models = f", models {', '.join(model or 'the run’s' for model in named)}"
        return (
            f"{NAME}: a plan, {self.fan_out.text} tool calls side by side after gaps of "
            f"{duration_text(self.tool_gap_s)}, a text of {self.write.text} tokens"
            f"{models if any(named) else ''}, within {self.max_context}"
        )

    def sessions(self, seed: int) -> Iterator[Session]:
        """See `Workload`. Without end."""
        draws = Draws(seed)
        return numbered(self._session(seed, draws, number) for number in count())

    def _session(self, seed: int, draws: Draws, number: int) -> Session:
        here = (NAME, number)
        task = text(self.task.draw(draws, *here, "task"), seed, *here, "task")
        plan = self.plan.draw(draws, *here, "plan")
        system = (Message("system", (text(self.system, seed, NAME, "system"),)),)
        begin = system if self.system else ()
        planned = (*begin, Message("user", (task,)), Message("assistant", (AnswerOf(0),)))
        turns = [
            Turn(
                ask=known_length(task, plan, draws, *here, "plan", model=self.planner_model),
                history=begin,
            )
        ]
        history = list(planned)
        many = self.fan_out.draw(draws, *here, "fan-out")
        for place in range(1, many + 1):
            turns.append(self._tool_turn(seed, draws, number, place, planned))
            history.append(Message("user", (turns[place].ask.text,)))
            history.append(Message("assistant", (AnswerOf(place),)))
        order = text(_WRITE_ORDER.high, seed, *here, "write")
        write = self.write.draw(draws, *here, "write")
        turns.append(
            Turn(
                ask=known_length(order, write, draws, *here, "write", model=self.writer_model),
                history=tuple(history),
                after=tuple(range(1, many + 1)),
            )
        )
        return Session(number=number, turns=tuple(turns), slo_class=NAME)

    def _tool_turn(
        self, seed: int, draws: Draws, number: int, place: int, planned: tuple[Message, ...]
    ) -> Turn:
        here = (NAME, number, place)
        result = min(self.result.draw(draws, *here, "result"), self._most_result)
        step = self.step.draw(draws, *here, "step")
        words = text(result, seed, *here, "result")
        return Turn(
            ask=known_length(words, step, draws, *here, model=self.tool_model),
            history=planned,
            after=(0,),
            pause_s=exponential(self.tool_gap_s, draws, *here, "gap"),
        )

    @property
    def _most_result(self) -> int:
        """Tokens of a tool's result for which the writer's call fits, whatever is drawn."""
        others = self.task.high + quoted(self.plan.high) + _WRITE_ORDER.high + self.write.high
        left = self._room(self.fan_out.high) - others
        return left // self.fan_out.high - quoted(self.step.high)

    def _room(self, fan_out: int) -> int:
        return room(self.max_context, 4 + 2 * fan_out) - self.system
