"""An owner in a process of its own, to be killed and stopped: `python peer_child.py FOLDER LIFE`.

All its leases are granted to the taker's life "d0-1", attempt 1.
"""

import asyncio
import json
import sys
from pathlib import Path

import uvloop
from peer_kit import Owner

from antiphon.types import Incarnation, LeaseId


async def serve(folder: Path, life: str) -> None:
    async with Owner(folder, life=life) as owner:
        for number in range(100):
            owner.leases.granted[LeaseId(f"{number}")] = (Incarnation("d0-1"), 1)
        print(json.dumps({"what": "ready"}), flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), sys.argv[2]))
