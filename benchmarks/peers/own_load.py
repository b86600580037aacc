"""Our side of `load_tools`: python own_load.py LOAD.json OUT.json, in a process of its own."""

import json
import sys
from pathlib import Path

import uvloop

from antiphon.bench import LoadResult, Server, probe, run_load
from antiphon.types import CallRecord
from antiphon.workload import Ask, Session, TimedSession, Turn


def main() -> None:
    load = json.loads(Path(sys.argv[1]).read_text())
    records: list[CallRecord] = []
    result = uvloop.run(loaded(load, records))
    print(result)
    records.sort(key=lambda record: record.number)
    good = [record for record in records if record.error is None and record.token_at_s]
    rows = [(r.sent_at_s, r.token_at_s[0], r.token_at_s[-1], r.output_tokens) for r in good]
    Path(sys.argv[2]).write_text(json.dumps(rows))


async def loaded(load, records: list[CallRecord]) -> LoadResult:
    def session(number: int, prompt: str) -> TimedSession:
        ask = Ask(
            number=number,
            text=prompt,
            max_tokens=load["max_tokens"],
            temperature=0.0,
            seed=number,
            ignore_eos=True,
        )
        at_s = number / load["rate_per_s"]
        return TimedSession(at_s, Session(number=number, turns=(Turn(ask=ask),)))

    sessions = [session(number, prompt) for number, prompt in enumerate(load["prompts"])]
    probed = await probe(Server(url=load["url"], model=load["model"]))
    return await run_load(probed.server, sessions, observe=records.append)


if __name__ == "__main__":
    main()
