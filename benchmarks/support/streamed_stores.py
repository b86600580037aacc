"""Two stores of one pool on two hosts: the far one has contexts, the near one is empty each time.

far  10.77.0.1 ── link ── 10.77.0.2  near-N, beside the worker

A block lives at its home, which follows from its key and the stores' names. The near store gets a
name by which it is home to none of a context's blocks, so that all of it has to come over the link.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from antiphon.core.store_pool import home_of
from antiphon.live.socket_folder import STORE_SOCKET
from antiphon.types import BlockKey, StoreName
from netns_kit import Net, Side

FAR = StoreName("far")
NEAR_NAMES = tuple(StoreName(f"near-{number}") for number in range(48))
FAR_BYTES = 2 << 30
START_S = 60.0
_PORTS = count(7421)


@dataclass(frozen=True)
class Store:
    """A store's process: its socket's folder, and where others of the pool call it."""

    name: StoreName
    folder: Path
    address: str

    @property
    def socket(self) -> Path:
        return self.folder / STORE_SOCKET


class StreamedStores:
    """Starts stores with the `values` of a configuration; `folder` is private."""

    def __init__(self, net: Net, folder: Path) -> None:
        self._net, self.folder = net, folder
        self._keys = folder / "keys"
        names = [argument for name in NEAR_NAMES for argument in ("--host", name)]
        command = _antiphon("cluster", "keys", str(self._keys), "--gateway", FAR, *names)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self._started = count()

    @contextmanager
    def far(self, values: Mapping[str, Mapping[str, object]]) -> Iterator[Store]:
        with self._store(FAR, "left", FAR_BYTES, values) as store:
            yield store

    @contextmanager
    def near(
        self,
        name: StoreName,
        far: Store,
        size: int,
        values: Mapping[str, Mapping[str, object]],
    ) -> Iterator[Store]:
        with self._store(name, "right", size, values, f"{far.name}@{far.address}") as store:
            yield store

    @contextmanager
    def _store(
        self,
        name: StoreName,
        side: Side,
        size: int,
        values: Mapping[str, Mapping[str, object]],
        *peers: str,
    ) -> Iterator[Store]:
        folder = self.folder / f"{name}.{next(self._started)}"
        folder.mkdir(mode=0o700)
        file = folder / "store.toml"
        file.write_text(_toml(values))
        address = f"{self._net.addresses(side)[0]}:{next(_PORTS)}"
        command = _antiphon("store", "--config", str(file), "--socket-dir", str(folder))
        command += ["--store-memory", str(size), "--keys", str(self._keys / name)]
        command += ["--pool-listen", address]
        command += [argument for peer in peers for argument in ("--peer", peer)]
        with ExitStack() as stack:
            process = self._net.start(side, command, stdout=subprocess.DEVNULL)
            stack.callback(_ended, process)
            store = Store(name, folder, address)
            _until_there(store.socket, process)
            yield store


def near_name(keys: Sequence[BlockKey], near_blocks: int, far_blocks: int) -> tuple[StoreName, int]:
    """The name by which a near store is home to the fewest of the blocks, and to how many."""

    def at_home(name: StoreName) -> int:
        weights = {FAR: float(far_blocks), name: float(near_blocks)}
        return sum(home_of(key, weights) == name for key in keys)

    name = min(NEAR_NAMES, key=at_home)
    return name, at_home(name)


def _antiphon(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "antiphon", *arguments]


def _until_there(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S
    while not path.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"a store did not start: exit code {process.poll()}")
        time.sleep(0.01)


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _toml(values: Mapping[str, Mapping[str, object]]) -> str:
    tables = []
    for table, content in values.items():
        lines = [f"{key} = {_value(value)}" for key, value in content.items()]
        tables.append("\n".join([f"[{table}]", *lines]))
    return "\n\n".join(tables) + "\n"


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str | Path) else str(value).lower()
