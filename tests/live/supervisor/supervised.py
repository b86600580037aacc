"""A supervisor of scripted children: run as `supervised.py FOLDER CONFIG_JSON`.

Prints its pid, then what it says: "say …", "log …", "ready …", "announce …". FOLDER/NAME.python, if
there, is what runs that child.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from antiphon.core.config import build
from antiphon.core.worker_places import WorkerPlaces
from antiphon.core.worker_spec import most_workers, spare_cores, worker_specs
from antiphon.errors import AntiphonError
from antiphon.live.listener import listen
from antiphon.live.supervisor.supervisor import Supervisor, Voice

CHILD = Path(__file__).parent / "scripted_child.py"
FREE_BYTES = 8 * 2**30


def command(name: str, folder: str) -> list[str]:
    given = Path(folder, f"{name}.python")
    return [str(given) if given.exists() else sys.executable, str(CHILD), name, folder]


def tell(kind: str, what: object) -> None:
    sys.stdout.write(f"{kind} {what}\n")
    sys.stdout.flush()


async def main() -> int:
    folder, config = sys.argv[1], build(json.loads(sys.argv[2]))
    with listen(config.http) as listener:
        tell("pid", os.getpid())
        tell("port", listener.getsockname()[1])
        supervisor = Supervisor(
            config,
            worker_specs(config.cluster, config.engine.cores, most_workers(config)),
            listener=listener,
            sockets=folder,
            commands=lambda name: command(name, folder),
            voice=Voice(
                say=lambda line: tell("say", line),
                log=lambda line: tell("log", line),
                ready=lambda ready: tell("ready", ready.serves),
                announce=lambda line: tell("announce", line),
            ),
            clock=time.monotonic,
        )
        supervisor.let_grow(
            WorkerPlaces(
                spare_cores(config.cluster, config.engine.cores, most_workers(config)),
                each_bytes=config.kv.memory_bytes,
            ),
            lambda: FREE_BYTES,
        )
        return await supervisor.run()


try:
    sys.exit(asyncio.run(main()))
except AntiphonError as error:
    tell(type(error).__name__, error)
    sys.exit(2)
