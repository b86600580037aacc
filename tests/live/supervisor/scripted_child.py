"""A child whose deeds the test chose: run as `scripted_child.py NAME FOLDER`.

FOLDER/NAME.script holds what each life does, one a line; the last line goes for all later lives.
FOLDER/NAME.lives gets a line "LIFE PID" when a life begins, FOLDER/NAME.heard every message.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from antiphon.errors import UsageError
from antiphon.live.supervisor import parent as parent_module
from antiphon.live.supervisor.messages import (
    AddWorker,
    Alive,
    Drain,
    Drained,
    EndWorker,
    KeepDrained,
    KeepRole,
    Present,
    Ready,
    Restart,
    Say,
    Stop,
    ToRunning,
)
from antiphon.live.supervisor.parent import Parent, run_child
from antiphon.types import Role


def main(parent: Parent) -> int:
    return asyncio.run(act(parent))


async def act(parent: Parent) -> int:
    name, folder = parent.launch.name, Path(sys.argv[2])
    life = parent.launch.life
    with (folder / f"{name}.lives").open("a") as file:
        file.write(f"{life} {os.getpid()} {parent.launch.role} {parent.launch.cores}\n")
    script = folder / f"{name}.script"
    lives = script.read_text().splitlines() if script.exists() else ["serve"]
    deed = lives[min(life, len(lives)) - 1]
    stopped = asyncio.Event()

    def hear(message: ToRunning) -> None:
        with (folder / f"{name}.heard").open("a") as file:
            file.write(f"{message}\n")
        if isinstance(message, Stop) and deed != "deaf":
            stopped.set()
        if isinstance(message, Drain) and deed == "die when drained":
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(message, Drain) and deed != "deaf":
            parent.tell(Drained())

    with (folder / f"{name}.heard").open("a") as file:
        file.write(f"begins with drained={parent.launch.drained}\n")
    parent.listen(hear)
    match deed.split():
        case ["refuse", *words]:
            raise UsageError(" ".join(words))
        case ["exit", code]:
            return int(code)
        case ["abort"]:
            os.kill(os.getpid(), signal.SIGABRT)
        case ["outlive", other]:
            # Until the next life of that one knows of this, which then ends before it is ready.
            heard = folder / f"{other}.heard"
            while f"='{name}'" not in "".join(heard.read_text().split("begins ")[2:]):
                await asyncio.sleep(0.01)
            return 7
        case ["hang"]:
            await stopped.wait()
        case ["write", *words]:
            os.write(1, " ".join(words).encode() + b"\n")
        case ["say", *words]:
            parent.tell(Say(" ".join(words)))
        case ["babble"]:
            os.write(2, b"x" * 100_000 + b"\n")
        case ["restart", worker, life]:
            parent.tell(Ready(serves="it"))
            await wait_for(folder / f"{name}.heard", "state='ready'", each="name=")
            parent.tell(Restart(worker, int(life)))
        case ["role", worker, role]:
            parent.tell(Ready(serves="it"))
            await wait_for(folder / f"{name}.heard", "state='ready'", each="name=")
            parent.tell(KeepRole(worker, Role(role)))
        case ["drain", worker]:
            parent.tell(Ready(serves="it"))
            await wait_for(folder / f"{name}.heard", "state='ready'", each="name=")
            parent.tell(KeepDrained(worker, True))
            os.kill(os.getpid(), signal.SIGKILL)
        case ["order", *orders]:
            # In order: "add:NAME:ROLE:ORDER", "die", "end:NAME:LIFE", "restart:NAME:LIFE";
            # "ready" waits until all that are there are, "killed" until one was killed,
            # "see:NAME" and "gone:NAME" until the newest word has that name, or has it no more;
            # "refused:NAME" until it was said that it is not added.
            parent.tell(Ready(serves="it"))
            heard = folder / f"{name}.heard"
            for order in orders:
                match order.split(":"):
                    case ["add", worker, role, *number]:
                        parent.tell(AddWorker(worker, Role(role), *map(int, number)))
                    case ["die"]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    case ["end", worker, life_ended]:
                        parent.tell(EndWorker(worker, int(life_ended)))
                    case ["restart", worker, which]:
                        parent.tell(Restart(worker, int(which)))
                    case ["ready"]:
                        await wait_for(heard, "state='ready'", each="name=")
                    case ["killed"]:
                        await wait_for(heard, "problem='killed by")
                    case ["see", worker]:
                        await wait_for(heard, f"='{worker}'")
                    case ["refused", worker]:
                        while f"NotAdded(worker='{worker}'" not in heard.read_text():
                            await asyncio.sleep(0.01)
                    case ["gone", worker]:
                        while f"='{worker}'" in heard.read_text().splitlines()[-1]:
                            await asyncio.sleep(0.01)
                    case _:
                        raise UsageError(f"what is {order}?")
        case ["alive", *times]:
            # So often, a moment apart; or without end.
            parent.tell(Ready(serves="it"))
            for _ in times or itertools.count():
                parent.tell(Alive())
                await asyncio.sleep(0.02)
            await stopped.wait()
            return 0
        case ["present", *moments]:
            # One word a moment, in which those who are there stand between commas; "+store" and
            # "-store" tell of the store.
            parent.tell(Ready(serves="it"))
            await wait_for(folder / f"{name}.heard", "state='ready'", each="name=")
            for moment in moments:
                names = moment.split(",")
                store = {"+store": True, "-store": False}.get(names[-1])
                parent.tell(Present(tuple(names if store is None else names[:-1]), store))
            await stopped.wait()
            return 0
    parent.tell(Ready(serves="it"))
    await stopped.wait()
    return 0


async def wait_for(file: Path, text: str, each: str = "") -> None:
    """Until the file says so, in its last line as often as that has `each`."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        lines = file.read_text().splitlines() if file.exists() else []
        if lines and lines[-1].count(text) >= max(1, lines[-1].count(each) if each else 1):
            return
        await asyncio.sleep(0.01)


class BlindParent(Parent):
    """Never reads its channel after the first word."""

    def follow(self) -> None:
        pass


if __name__ == "__main__":
    script = Path(sys.argv[2], f"{sys.argv[1]}.script")
    if script.exists() and script.read_text() == "blind":
        parent_module.Parent = BlindParent  # type: ignore[misc]
    run_child(main)
