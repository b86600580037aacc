"""The decisions of a live worker on record."""

import asyncio
import io
import random
from pathlib import Path

from live_kit import Driver, Engine, ended, next_events, request, setup, worker

from antiphon.core.recorded_run import fresh_machines
from antiphon.core.recorder import Entry, replay
from antiphon.live.decision_log import DecisionLog
from antiphon.types import TokenGenerated
from antiphon.wire import DecisionLogWriter, read_decision_log


async def log_of_a_run(log: io.BufferedIOBase) -> None:
    """A live run with everything in it: shared prompts, aborts, a deadline, a fault, a refusal."""
    chance = random.Random(5)
    engine = Engine(fails=lambda plan: plan.number == 17)
    writer = DecisionLogWriter(log)  # type: ignore[arg-type]
    writer.begin(setup(24))
    link = worker(engine, log_decision=writer, max_batched_tokens=24)

    def watch(driver: Driver, token: TokenGenerated) -> None:
        if chance.random() < 0.02:
            driver.cancel(token.request, chance.choice([None, token.sequence]))

    async with link:
        driver = Driver(link, watch)
        for number in range(80):
            prompt = [*[3] * 8 * chance.randint(0, 2), *range(chance.randint(1, 20))]
            driver.start(
                request(f"r{number}", prompt, chance.randint(1, 12), chance.choice([1, 2]))
            )
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        driver.start(request("too-long", range(100), n=16))
        await driver.finish()
    await driver.stop()


async def test_a_live_decision_log_replays_to_the_same_decisions(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with path.open("wb") as file:
        await log_of_a_run(file)
    with path.open("rb") as file:
        entries = list(read_decision_log(file, str(path)).entries)
    methods = {entry.method for entry in entries}
    assert methods >= {"add", "abort", "step", "complete", "fail"}
    assert list(replay(entries, fresh_machines(setup(24)))) == []
    assert list(replay(entries, fresh_machines(setup(23)))), "another machine decides otherwise"


async def test_a_changed_token_in_a_live_log_is_found() -> None:
    log = io.BytesIO()
    await log_of_a_run(log)
    lines = log.getvalue().splitlines(keepends=True)
    place = next(
        place
        for place, line in enumerate(lines)
        if b'"complete"' in line and b'"result"' in line and b'"token":' in line
    )
    before, after = lines[place].split(b'"token":', 1)
    digits = len(after) - len(after.lstrip(b"0123456789"))
    lines[place] = before + b'"token":99' + after[digits:]
    differences = list(replay(read_decision_log(lines).entries, fresh_machines(setup(24))))
    assert differences and differences[0].number == place
    assert differences[0].path.endswith(".token")


async def test_a_full_disk_ends_the_log_and_not_the_worker() -> None:
    written: list[Entry] = []

    def full(entry: Entry) -> None:
        written.append(entry)
        if len(written) == 3:
            raise OSError("no space left on device")

    async with worker(Engine(), log_decision=DecisionLog(full)) as link:
        await link.add(request("a", max_tokens=5))
        events = await next_events(link)
        while not ended(events):
            events += await next_events(link)
        assert link.healthy
    assert len(written) == 3
