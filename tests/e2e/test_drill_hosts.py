"""The drill on a cluster of two hosts: processes, streams and cables, and answers as before."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts_kit import CABLE, TwoHosts, health

from netns_kit import joined_hosts

pytestmark = pytest.mark.timeout(300)

DECODES = "box2.decode-0"
PLAN = """
seed = 11

[load]
rate = 8
duration = "15s"
asks = 6
prompt-words = "60-150"
max-tokens = "30-120"

[[fault]]
at = "0.5s"
target = "box2.decode-0"
action = "garble-kv"

[[fault]]
at = "1.5s"
target = "prefill-0"
action = "cut-kv"

[[fault]]
at = "2.5s"
target = "box2.decode-0"
action = "garble"

[[fault]]
at = "4s"
target = "box2.decode-0"
action = "cut"

[[fault]]
at = "9.5s"
target = "box2.decode-0"
action = "stop"
for = "2.5s"

[[fault]]
at = "12.5s"
target = "box2.decode-0"
action = "kill"
"""
CABLE_AT_S, ONE_OF_TWO_AT_S = 5.5, 8.0
"""While the load lasts: both cables, until the worker is given up; then one of them for a while."""
DONE = ["cut", "cut-kv", "garble", "garble-kv", "kill", "stop"]


@pytest.fixture
def hosts(tiny: Path, tmp_path: Path) -> Iterator[TwoHosts]:
    with joined_hosts(CABLE, CABLE) as net:
        both = TwoHosts(net, tmp_path, tiny, pooled=True)
        try:
            both.start_worker()
            both.until_decodes()
            yield both
            assert both.server.stop() == 0, "".join(both.server.output)
        finally:
            both.close()


class Cables(threading.Thread):
    """Pulls cables while the drill's load runs. `given_up`: the gateway saw the worker go."""

    def __init__(self, hosts: TwoHosts) -> None:
        super().__init__()
        self.began = threading.Event()
        self.given_up = False
        self.problem: BaseException | None = None
        self._hosts = hosts

    def run(self) -> None:
        try:
            self._pull()
        except BaseException as error:
            self.problem = error
            raise

    def _pull(self) -> None:
        assert self.began.wait(120)
        began = time.monotonic()
        net = self._hosts.net
        time.sleep(max(0.0, began + CABLE_AT_S - time.monotonic()))
        for link in (0, 1):
            net.cut(link)
        self._hosts.server.until(lambda status: health(status, DECODES) == "expected")
        self.given_up = True
        for link in (0, 1):
            net.mend(link)
        time.sleep(max(0.0, began + ONE_OF_TWO_AT_S - time.monotonic()))
        net.cut(0)
        self._hosts.until_decodes()
        time.sleep(1.0)
        net.mend(0)


def test_processes_streams_and_cables_fail_and_no_answer_is_wrong(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    """The remote worker is killed and stopped, its streams are cut and garbled, all cables are
    pulled, then one of two; nothing is left afterwards."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    drill = [sys.executable, "-m", "antiphon", "drill", "--url", hosts.server.url]
    cables = Cables(hosts)
    cables.start()
    with subprocess.Popen(
        hosts.net.command("left", [*drill, "--plan", str(plan), "--json"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        said: list[str] = []
        for line in running.stderr:
            said.append(line)
            if line.startswith("Load with faults"):
                cables.began.set()
        printed = running.stdout.read()
    cables.join(60)
    assert running.returncode == 0, f"{printed}\n{chr(10).join(said)}"
    report: dict[str, Any] = json.loads(printed)
    assert cables.problem is None
    assert cables.given_up
    assert report["passed"] is True
    assert report["findings"] == report["leftovers"] == report["growth"] == []
    assert sorted(fault["kind"] for fault in report["faults"]) == DONE
    assert report["not_injected"] == []
    assert report["asks"] > 50
