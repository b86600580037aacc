"""One end of a worker's link in a process of its own, to be killed and stopped.

    python link_child.py worker PATH NAME     joins, takes everything, says one token of it
    python link_child.py gateway PATH         lets workers in and gives each one request

It prints a line of JSON for all that happens, on a loop like the server's.
"""

import asyncio
import json
import logging
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop
from link_kit import IDENTITY, WELCOME, PuppetWorker, request, token, worker_info

from antiphon.core.joining import judge_join
from antiphon.live.join_socket import JoinSocket
from antiphon.live.remote_worker import RemoteWorker
from antiphon.live.worker_port import WorkerPort
from antiphon.types import Admitted, Incarnation, Rejected, Request

LOST_AFTER_S = 1.0
CHILD_WELCOME = replace(WELCOME, heartbeat_s=0.05, lost_after_s=LOST_AFTER_S)


def tell(what: str, **facts: object) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)  # noqa: T201


class TellingWorker(PuppetWorker):
    lives = 1

    async def _take(self, request: Request) -> Admitted | Rejected:
        tell("add", id=request.id, attempt=request.attempt, life=self.info.incarnation)
        answer = await super()._take(request)
        self.say(token(request, 0))
        return answer

    async def abort(self, id, attempt, sequence=None):
        tell("abort", id=id, attempt=attempt, life=self.info.incarnation)
        return await super().abort(id, attempt, sequence)

    async def new_life(self) -> None:
        self.lives += 1
        life = Incarnation(f"life-{self.lives}")
        self.info = replace(self.info, incarnation=life)
        tell("life", life=life, left=sorted(self.running))


async def serve_worker(path: Path, name: str) -> None:
    worker = TellingWorker(worker_info(name))
    tell("ready")
    await WorkerPort(worker, path, new_life=worker.new_life, clock=time.monotonic).run()


async def serve_gateway(path: Path) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def joined(link: RemoteWorker) -> None:
        tell("joined", life=link.info.incarnation)
        tasks.add(asyncio.create_task(use(link)))

    judge = partial(judge_join, identity=IDENTITY, max_workers=8)
    door = JoinSocket(
        path, judge=judge, welcome=CHILD_WELCOME, on_join=joined, clock=time.monotonic
    )
    await door.start()
    tell("ready")
    await asyncio.Event().wait()


async def use(link: RemoteWorker) -> None:
    await link.add(request(f"for-{link.info.incarnation}"))
    async for batch in link.events():
        tell("events", count=len(batch), life=link.info.incarnation)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if sys.argv[1] == "worker":
        uvloop.run(serve_worker(Path(sys.argv[2]), sys.argv[3]))
    else:
        uvloop.run(serve_gateway(Path(sys.argv[2])))
