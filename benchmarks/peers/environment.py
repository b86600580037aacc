"""The peers' virtualenvs: one each, with pinned versions, apart from the project's own."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A named competitor: what to install, and the script in this folder that runs it."""

    name: str
    package: str
    script: str
    note: str
    alone: tuple[str, ...] = ()
    """Install just these, without what they depend on, instead of `package` with all of it."""


LLAMA_CPP = Peer(
    name="llama.cpp",
    package="xllamacpp==2026.10.11549",
    script="llama_cpp.py",
    note="the wheel is built for AVX2; it has no AVX-512 kernels to choose",
)
PEERS = (
    LLAMA_CPP,
    Peer(
        name="OpenVINO GenAI",
        package="openvino-genai==2026.4.1.0",
        script="openvino_peer.py",
        note="KV in 8 bits; bfloat16 where the CPU has it",
    ),
)

NIXL = Peer(
    name="NIXL over UCX",
    package="nixl==1.5.1",
    script="nixl_peer.py",
    note="verifies nothing; the transport is the one that UCX chooses on one host",
    alone=("nixl==1.5.1", "nixl_cu12==1.5.1", "numpy==2.4.6"),
)
"""Moves bytes between processes; computes no tokens, so it is none of `PEERS`."""

REDIS = Peer(
    name="Redis",
    package="redis==8.1.0",
    script="redis_peer.py",
    note="the server is Debian's, over TCP on loopback, nothing saved; the client parses in C",
    alone=("redis==8.1.0", "hiredis==3.5.0"),
)
MOONCAKE = Peer(
    name="Mooncake Store",
    package="mooncake-transfer-engine-non-cuda==0.3.13.post1",
    script="mooncake_peer.py",
    note="P2PHANDSHAKE, TCP; from and into registered memory, values lie in another process",
)
STORES = (REDIS, MOONCAKE)
"""Keep values under keys."""

AIPERF = Peer(
    name="AIPerf",
    package="aiperf==0.13.0",
    script="load_tools.py",
    note="several processes, tokens counted by the server",
)
GUIDELLM = Peer(
    name="GuideLLM",
    package="guidellm==0.8.1",
    script="load_tools.py",
    note="several processes, tokens counted by the server",
)
LOAD_TOOLS = (AIPERF, GUIDELLM)
"""Put load on servers, and say what its users got."""


def python_of(peer: Peer, folder: Path) -> Path:
    """The peer's interpreter, whether it exists or not."""
    return folder / peer.package.replace("==", "-") / "bin/python"


def prepare(peer: Peer, folder: Path, say: Callable[[str], None]) -> str | None:
    """Make the peer's virtualenv unless it is there; returns why it can't be, or None."""
    python = python_of(peer, folder)
    done = python.parent.parent / "installed"
    if done.exists():
        return None
    say(f"Installing {peer.package} (once) in {python.parent.parent}")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(python.parent.parent)],
        [
            *pip,
            "--only-binary=:all:",
            *(("--no-deps", *peer.alone) if peer.alone else (peer.package,)),
        ],
    ):
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode:
            lines = finished.stderr.strip().splitlines() or ["no message"]
            return f"{peer.package} can't be installed: {lines[-1]}"
    done.touch()
    return None
