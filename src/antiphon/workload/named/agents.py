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
from ..context import DEFAULT_CONTEXT, Budget, MaxContext, quoted, room, spare
from ..known_length import known_length
from ..lengths import Lengths, UniformLength
from ..number_text import duration_text
from ..numbering import numbered
from ..options import Option, check
from ..prompt_text import text
from ..sessions import AnswerOf, Message, Session, Turn

NAME = "agents"
_FAN_OUT = UniformLength(2, 4)
_TASK = UniformLength(40, 120)
_PLAN = UniformLength(64, 128)
_RESULT = UniformLength(50, 300)
_STEP = UniformLength(32, 96)
_WRITE = UniformLength(100, 250)
_ORDER_TOKENS = 16
"""Of the user's last message: write now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Workflows. All calls begin alike: system prompt with tools, task, plan.

    Calls of tools start once the plan is there and the tool has run (exponential gaps); the writer
    sees their results and the answers to them. Lengths are cut, the last tools' first, to fit
    `max_context`.
    """

    fan_out: Annotated[Lengths, Option("calls side by side", high=100)] = _FAN_OUT
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
        self._spare()

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
        here, budget = (NAME, number), Budget(self._spare())
        words = budget.take(self.task.draw(draws, *here, "task"), self.task.low)
        plan = budget.take_quoted(self.plan.draw(draws, *here, "plan"), self.plan.low)
        write = budget.take(self.write.draw(draws, *here, "write"), self.write.low)
        task = text(words, seed, *here, "task")
        system = Message("system", (text(self.system, seed, NAME, "system"),))
        begin = (system,) if self.system else ()
        planned = (*begin, Message("user", (task,)), Message("assistant", (AnswerOf(0),)))
        planner = known_length(task, plan, draws, *here, "plan", model=self.planner_model)
        turns, history = [Turn(ask=planner, history=begin)], [*planned]
        tools = range(1, 1 + self.fan_out.draw(draws, *here, "fan-out"))
        for place in tools:
            turns.append(self._tool_turn(seed, draws, (*here, place), budget, planned))
            history.append(Message("user", (turns[place].ask.text,)))
            history.append(Message("assistant", (AnswerOf(place),)))
        order = text(_ORDER_TOKENS, seed, *here, "write")
        writer = known_length(order, write, draws, *here, "write", model=self.writer_model)
        turns.append(Turn(ask=writer, history=tuple(history), after=tuple(tools)))
        return Session(number=number, turns=tuple(turns), slo_class=NAME)

    def _tool_turn(
        self,
        seed: int,
        draws: Draws,
        here: tuple[str | int, ...],
        budget: Budget,
        planned: tuple[Message, ...],
    ) -> Turn:
        step = budget.take_quoted(self.step.draw(draws, *here, "step"), self.step.low)
        result = budget.take(self.result.draw(draws, *here, "result"), self.result.low)
        words = text(result, seed, *here, "result")
        return Turn(
            ask=known_length(words, step, draws, *here, model=self.tool_model),
            history=planned,
            after=(0,),
            pause_s=exponential(self.tool_gap_s, draws, *here, "gap"),
        )

    def _spare(self) -> int:
        """Beside the shortest of everything in the writer's call, which is the longest."""
        tools = self.fan_out.high
        needed = self.system + self.task.low + quoted(self.plan.low) + _ORDER_TOKENS
        needed += self.write.low + tools * (self.result.low + quoted(self.step.low))
        return spare(NAME, needed, room(self.max_context, 4 + 2 * tools), self.max_context)
