"""Load that does not wait for answers: each ask goes out at its time, and its answer is kept."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from antiphon.types import Seconds
from antiphon.workload import Ask

from .answer import Answer
from .client import Client
from .pacing import wait_until


@dataclass(frozen=True, slots=True)
class Arrival:
    """An ask and when it is due, in seconds from the start of the run."""

    at_s: Seconds
    ask: Ask


async def run_open_loop(
    client: Client,
    arrivals: Iterable[Arrival],
    *,
    on_answer: Callable[[Answer], None] = lambda _answer: None,
) -> list[Answer]:
    """Send every ask at its time and return all answers, in order of their numbers.

    `arrivals` are in order of time; they are taken one by one, so they may go on until their
    source ends. Cancelling it cancels what is open.
    """
    started = time.monotonic()
    answers: list[Answer] = []

    async def send(arrival: Arrival) -> None:
        answer = await client.send(arrival.ask, due_at=started + arrival.at_s)
        answers.append(answer)
        on_answer(answer)

    async with asyncio.TaskGroup() as tasks:
        for arrival in arrivals:
            await wait_until(started + arrival.at_s)
            tasks.create_task(send(arrival))
    return sorted(answers, key=lambda answer: answer.number)
