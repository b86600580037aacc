"""What is told of a run against a server: when it begins, and when it is over."""

import asyncio
from dataclasses import replace

from antiphon.bench import LoadLimits, LoadResult, Sender, Server, ended
from antiphon.runs import LoadPlan
from antiphon.workload import Poisson, parse_workload


class Nobody:
    is_live = False

    def say(self, line: str) -> None:
        raise AssertionError(line)

    log = say


def test_what_is_told_of_it() -> None:
    plan = LoadPlan(
        workload=parse_workload("chat"),
        arrivals=Poisson(1.0),
        calls_per_session=1.0,
        duration_s=30.0,
        notes=("careful",),
    )
    sender = Sender(
        server=Server(url="http://example.com:9000/v1", model="m"),
        limits=LoadLimits(),
        count_tokens=None,
        watcher=Nobody(),
        stop=asyncio.Event(),
        command="antiphon bench …",
    )
    run = sender.begun(plan, "now")
    assert run.title == "m at example.com:9000"
    assert sender.begun(replace(plan, title="mine"), "now").title == "mine"
    assert (run.target, run.started_at) == ("http://example.com:9000/v1", "now")
    assert run.command == "antiphon bench …"
    result = LoadResult(
        started_at=0.0,
        calls=5,
        failed=0,
        unfinished=0,
        duration_s=31.0,
        lateness_p99_s=0.02,
        lag_p99_s=0.0,
        client_busy=0.4,
        is_stopped=False,
        notes=("late",),
    )
    over = ended(run, result)
    assert (over.lateness_p99_s, over.client_busy) == (0.02, 0.4)
    assert over.notes == ("careful", "late")
