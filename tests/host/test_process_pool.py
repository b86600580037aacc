"""Processes that compute for another end with it, whatever ends it and when."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
COMMAND = """
import os
import signal
import sys
from time import sleep

from antiphon.host.process_pool import process_pool

if __name__ != "__main__" and sys.argv[1] == "early":  # its parent ends while this is imported
    os.write(1, b"there\\n")
    while os.getppid() == int(os.environ["PARENT"]):
        sleep(0.001)


def compute(number: int) -> None:
    os.write(1, b"there\\n")  # at once: there are two of them
    while True:
        signal.pause()


if __name__ == "__main__":
    os.environ["PARENT"] = str(os.getpid())
    with process_pool(2) as pool:
        list(pool.map(compute, range(8)))
"""


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_all(tmp_path: Path, sent: signal.Signals, when: str) -> None:
    file = tmp_path / "command.py"
    file.write_text(COMMAND)
    process = subprocess.Popen(
        [sys.executable, str(file), when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for _ in range(2):
            assert process.stdout.readline() == "there\n"
        process.send_signal(sent)
        process.communicate(timeout=DEADLINE_S)  # pipes close when all of them are gone
        assert process.returncode == -sent
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_all_pools_are_such_ones() -> None:
    """But for `sim_jobs`, whose processes end in order and keep what they have."""
    apart = {"src/antiphon/host/process_pool.py", "src/antiphon/cli/sim_jobs.py"}
    for file in (*ROOT.glob("src/**/*.py"), *ROOT.glob("benchmarks/**/*.py")):
        name = file.relative_to(ROOT).as_posix()
        text = file.read_text()
        makes = "ProcessPoolExecutor(" in text or (").Pool(" in text and "multiprocessing" in text)
        assert makes == (name in apart), f"{name}: take antiphon.host.process_pool"
