"""The supervisor and scripted children, as real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervision import DEADLINE_S, SLOW, alive


def test_it_starts_all_and_the_first_signal_ends_all_in_order(supervise) -> None:
    running = supervise(cluster={"prefill": 1, "decode": 1}, engine={"cores": [0, 1]})
    running.until(lambda: running.saw("ready it"))
    assert [" ".join(life[2:]) for life in running.lives("prefill-0")] == ["prefill (0,)"]
    assert [" ".join(life[2:]) for life in running.lives("decode-0")] == ["decode (1,)"]
    assert [" ".join(life[2:]) for life in running.lives("gateway")] == ["mixed (0, 1)"]
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert running.saw("announce Stopping")
    assert not any(map(alive, running.pids()))
    assert "Drain(timeout_s=120.0)" in running.heard("gateway")
    assert "Stop()" in running.heard("gateway")
    assert "Stop()" in running.heard("decode-0")
    assert not any(line.startswith("log ") for line in running.lines)


@pytest.mark.parametrize("name", ["gateway", "mixed-0"])
def test_a_killed_child_is_started_again_and_the_others_live_on(supervise, name: str) -> None:
    running = supervise()
    running.until(lambda: running.saw("ready it"))
    before = {child: running.lives(child) for child in ("gateway", "mixed-0")}
    os.kill(int(before[name][0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives(name)) == 2)
    assert running.saw(f"log {name} | ended (killed by SIGKILL): {SLOW}")
    assert running.lives(name)[1][0] == "2"
    other = "mixed-0" if name == "gateway" else "gateway"
    assert running.lives(other) == before[other]
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


def test_the_gateway_hears_of_the_workers_whoever_of_them_is_new(supervise) -> None:
    running = supervise()
    running.until(lambda: running.saw("ready it"))
    [worker] = running.lives("mixed-0")
    running.until(lambda: f"state='ready', pid={worker[1]}" in running.heard("gateway"))
    os.kill(int(worker[1]), signal.SIGKILL)
    running.until(lambda: "problem='killed by SIGKILL'" in running.heard("gateway"))
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    second = running.lives("mixed-0")[1]
    running.until(lambda: f"state='ready', pid={second[1]}, life=2" in running.heard("gateway"))
    (running.folder / "gateway.heard").unlink()
    os.kill(int(running.lives("gateway")[0][1]), signal.SIGKILL)
    running.until(lambda: f"state='ready', pid={second[1]}, life=2" in running.heard("gateway"))


@pytest.mark.parametrize(
    ("stop_first", "child"), [(False, "serve"), (True, "serve"), (False, "blind"), (True, "blind")]
)
def test_a_killed_supervisor_leaves_nothing(supervise, stop_first: bool, child: str) -> None:
    """Stopped before or not; the children that follow their parent, and a kind that does not.

    The blind one never reads its channel: PR_SET_PDEATHSIG alone ends it.
    """
    running = supervise({"mixed-0": child, "gateway": child, "store": child})
    running.until(lambda: running.saw("ready it") and len(running.pids()) == 3)
    if stop_first:
        running.process.send_signal(signal.SIGSTOP)
    running.process.kill()
    running.process.wait(DEADLINE_S)
    running.until(lambda: not any(map(alive, running.pids())))


def test_a_stopped_child_does_not_outlive_a_killed_supervisor(supervise) -> None:
    running = supervise()
    running.until(lambda: running.saw("ready it"))
    for pid in running.pids():
        os.kill(pid, signal.SIGSTOP)
    running.process.kill()
    running.process.wait(DEADLINE_S)
    running.until(lambda: not any(map(alive, running.pids())))


def test_the_channel_alone_ends_a_child_where_there_is_no_death_signal() -> None:
    """What macOS has, and what is left if the parent dies before the child asks for the signal."""
    script = (
        "import signal, sys, time\n"
        "from antiphon.live.supervisor import parent as module\n"
        "module.die_with_parent = lambda number: None\n"
        "def main(parent):\n"
        "    print('here', flush=True)\n"
        "    while True: time.sleep(60)\n"
        "module.run_child(main)\n"
    )
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", script], stdin=theirs, stdout=subprocess.PIPE)
    theirs.close()
    ours.sendall(b'{"type":"Launch","name":"x","config":{},"sockets":"/"}\n')
    assert child.stdout is not None
    assert child.stdout.readline() == b"here\n"
    ours.close()
    assert child.wait(DEADLINE_S) == 3
    child.stdout.close()


def test_a_child_started_by_hand_says_who_starts_it() -> None:
    script = "from antiphon.live.supervisor.parent import run_child\nrun_child(lambda parent: 0)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (2, "this program is started by `antiphon serve`\n")


def test_the_second_signal_ends_all_at_once(supervise) -> None:
    running = supervise({"mixed-0": "deaf", "gateway": "deaf"})
    running.until(lambda: running.saw("ready it"))
    running.process.send_signal(signal.SIGTERM)
    running.until(lambda: "Drain" in running.heard("gateway"))
    running.process.send_signal(signal.SIGINT)
    assert running.code() == 128 + signal.SIGINT
    assert not any(map(alive, running.pids()))


def test_a_gateway_that_dies_while_it_drains_is_not_waited_for(supervise) -> None:
    running = supervise({"gateway": "die when drained"})
    running.until(lambda: running.saw("ready it"))
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert not any(map(alive, running.pids()))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_while_children_start(supervise, number: int, code: int) -> None:
    running = supervise({"mixed-0": "hang"})
    running.until(lambda: bool(running.lives("mixed-0")))
    running.process.send_signal(number)
    assert running.code() == code
    assert not any(map(alive, running.pids()))


def test_what_a_child_refuses_at_the_start_ends_all(supervise) -> None:
    running = supervise({"mixed-0": "refuse kv.memory_bytes = 9: too much"})
    assert running.code() == 2
    assert running.lines[-1] == "UsageError kv.memory_bytes = 9: too much"
    assert not any(map(alive, running.pids()))


def test_what_a_child_refuses_later_is_a_death_like_any_other(supervise) -> None:
    running = supervise({"mixed-0": "serve\nrefuse the file is gone\nserve"})
    running.until(lambda: running.saw("ready it"))
    os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: running.saw("log mixed-0 | ended (the file is gone): started again"))
    running.until(lambda: len(running.lives("mixed-0")) == 3)
    assert running.process.poll() is None


def test_children_that_never_get_ready_are_started_again_and_given_up_in_the_end(supervise) -> None:
    running = supervise({"mixed-0": "hang", "gateway": "hang"}, cluster={"start_timeout_s": 0.3})
    assert running.code() == 2
    reason = "not ready within cluster.start_timeout_s = 0.3 s"
    for name in ("mixed-0", "gateway"):
        assert running.saw(f"log {name} | ended ({reason}): {SLOW}")
    assert running.lines[-1].startswith("PeerError ")
    assert " could not be started: it ended 5 times before it was ready" in running.lines[-1]
    assert reason in running.lines[-1]


def test_a_child_that_gets_ready_in_a_later_try_serves(supervise) -> None:
    running = supervise({"mixed-0": "exit 7\nabort\nserve"})
    running.until(lambda: running.saw("ready it"))
    assert running.saw(f"log mixed-0 | ended (exit code 7): {SLOW}")
    assert running.saw("log mixed-0 | ended (killed by SIGABRT): started again in 0.1 s")


def test_what_a_child_writes_bears_its_name(supervise) -> None:
    running = supervise(
        {"prefill-0": "write hello there", "decode-0": "babble"},
        cluster={"prefill": 1, "decode": 1},
    )
    running.until(lambda: running.saw("log prefill-0 | hello there"))
    running.until(lambda: running.saw("log decode-0 | xxxx"))
    assert max(map(len, running.lines)) < 10_000


def test_the_gateway_has_a_worker_started_anew(supervise) -> None:
    running = supervise({"gateway": "restart mixed-0 1"})
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    assert "Stop" in running.heard("mixed-0")
    assert not running.saw("log mixed-0 | ended")


@pytest.mark.parametrize("gateway", ["serve", "restart mixed-0 1"])
def test_a_restarted_worker_without_a_process_is_tried_again_after_the_back_off(
    supervise, tmp_path: Path, gateway: str
) -> None:
    """It died, or was restarted by order: its first life is the last that can be executed."""
    program = tmp_path / "mixed-0.python"
    program.write_text(f'#!/bin/sh\nchmod 644 "$0"\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    running = supervise({"gateway": gateway})
    if gateway == "serve":
        running.until(lambda: running.saw("ready it"))
        os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: running.saw("log mixed-0 | ended (its process could not be created: "))
    running.until(lambda: running.saw("Permission denied", times=2))
    assert running.process.poll() is None
    program.chmod(0o755)
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


HUNG = "ended (its process hung: not with the gateway for 0.5 s)"


def test_a_worker_that_hangs_is_started_anew_and_one_that_came_back_is_not(supervise) -> None:
    """A deadlocked worker stayed lost at the gateway and ready at the supervisor for ever."""
    running = supervise(
        {"gateway": "present mixed-1 mixed-0", "mixed-1": "deaf"},
        cluster={"mixed": 2, "hung_after_s": 0.5},
    )
    running.until(lambda: len(running.lives("mixed-1")) == 2)
    assert running.saw(f"log mixed-1 | {HUNG}: {SLOW}")
    assert len(running.lives("mixed-0")) == 1, "it was missed earlier, but not for so long"


def test_a_hung_worker_is_ended_even_if_it_is_stopped(supervise) -> None:
    running = supervise(
        {"gateway": "present mixed-0,mixed-1 mixed-0"}, cluster={"mixed": 2, "hung_after_s": 0.5}
    )
    running.until(lambda: bool(running.lives("mixed-1")))
    running.until(lambda: running.saw("ready it"))
    os.kill(int(running.lives("mixed-1")[0][1]), signal.SIGSTOP)
    running.until(lambda: running.saw(f"log mixed-1 | {HUNG}"))


def test_nobody_is_missed_by_a_gateway_that_does_not_say_who_is_there(supervise) -> None:
    """And not by one that is gone, whose workers can't be with it: the wait for the next one is
    longer than any of them may be missed."""
    running = supervise(
        {"gateway": "present mixed-0\nserve"},
        cluster={"hung_after_s": 0.2, "restart_backoff_s": 0.5},
    )
    running.until(lambda: running.saw("ready it"))
    os.kill(int(running.lives("gateway")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("gateway")) == 2)
    running.until(lambda: "state='ready'" in running.heard("gateway"))
    assert len(running.lives("mixed-0")) == 1


def test_a_gateway_that_hangs_is_started_anew(supervise) -> None:
    """Workers and stores were; a gateway whose loop stood still was waited for without end."""
    running = supervise({"gateway": "alive 1 1 1\nserve"}, cluster={"hung_after_s": 0.5})
    running.until(lambda: len(running.lives("gateway")) == 2)
    assert running.saw("log gateway | ended (its process hung: silent for 0.5 s)")
    assert len(running.lives("mixed-0")) == 1


def test_one_that_says_that_it_lives_is_not_and_nobody_is_for_a_supervisor_that_stood_still(
    supervise,
) -> None:
    running = supervise({"gateway": "alive"}, cluster={"hung_after_s": 1.0})
    running.until(lambda: running.saw("ready it"))
    os.kill(running.process.pid, signal.SIGSTOP)
    time.sleep(3.0)  # longer than the gateway may be silent, and than a timer may be late
    os.kill(running.process.pid, signal.SIGCONT)
    os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    assert len(running.lives("gateway")) == 1


def test_a_drain_is_kept_over_the_gateways_death_and_ends_with_the_worker(supervise) -> None:
    running = supervise({"gateway": "drain mixed-0\nserve"}, cluster={"mixed": 2})

    def told(life: int) -> str:
        """At the begin of this life of the gateway."""

        def begins() -> list[str]:
            heard = running.heard("gateway").splitlines()
            return [line for line in heard if line.startswith("begins")]

        running.until(lambda: len(begins()) >= life)
        return begins()[life - 1]

    assert told(2) == "begins with drained=('mixed-0',)"
    os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    os.kill(int(running.lives("gateway")[1][1]), signal.SIGKILL)
    assert told(3) == "begins with drained=()"


def test_a_role_is_kept_over_a_restart(supervise) -> None:
    running = supervise({"gateway": "role mixed-0 decode"})
    running.until(lambda: "role=<Role.DECODE" in running.heard("gateway"))
    os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    assert [life[2] for life in running.lives("mixed-0")] == ["mixed", "decode"]


def test_connections_wait_while_there_is_no_gateway(supervise) -> None:
    running = supervise({"gateway": "exit 1"}, cluster={"restart_backoff_s": 3600.0})
    running.until(lambda: running.saw("log gateway | ended"))
    port = int(next(line for line in running.lines if line.startswith("port ")).split()[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


# ── the store ────────────────────────────────────────────────────────────────────────────────────


def test_nobody_waits_for_the_store_and_it_ends_after_the_workers(supervise) -> None:
    running = supervise({"store": "hang"})
    running.until(lambda: running.saw("ready it") and bool(running.lives("store")))
    running.until(lambda: "name='store'" in running.heard("gateway"))
    assert "state='starting'" in running.heard("gateway").splitlines()[-1]
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0
    assert not any(map(alive, running.pids()))


def test_a_killed_store_is_started_again_and_nobody_else(supervise) -> None:
    running = supervise()
    running.until(lambda: running.saw("ready it") and bool(running.lives("store")))
    before = {child: running.lives(child) for child in ("gateway", "mixed-0")}
    running.until(lambda: "store=ChildState(name='store'" in running.heard("gateway"))
    os.kill(int(running.lives("store")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("store")) == 2)
    assert running.saw("log store | ended (killed by SIGKILL)")
    assert {child: running.lives(child) for child in before} == before
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


def test_a_store_that_never_starts_is_given_up_and_the_server_lives(supervise) -> None:
    running = supervise({"store": "exit 1"})
    running.until(lambda: running.saw("log store | given up, the server goes on without it"))
    running.until(lambda: running.saw("ready it"))
    running.until(lambda: "store=None" in running.heard("gateway").splitlines()[-1])
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


def test_a_store_that_is_refused_at_the_start_is_an_error_of_the_start(supervise) -> None:
    running = supervise({"store": "refuse the folder is not private"})
    assert running.code() == 2
    assert running.saw("UsageError the folder is not private")


def test_the_store_is_restarted_when_the_gateway_says_so(supervise) -> None:
    running = supervise({"gateway": "restart store 1"})
    running.until(lambda: len(running.lives("store")) == 2)
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


def test_a_store_that_hangs_is_started_anew(supervise) -> None:
    running = supervise(
        {"gateway": "present mixed-0,-store mixed-0,+store mixed-0,-store", "store": "deaf"},
        cluster={"hung_after_s": 0.5},
    )
    running.until(lambda: len(running.lives("store")) == 2)
    assert running.saw(f"log store | {HUNG}: {SLOW}")


def test_a_store_that_nobody_looks_at_is_not_missed(supervise) -> None:
    running = supervise({"gateway": "present mixed-0"}, cluster={"hung_after_s": 0.1})
    running.until(lambda: running.saw("ready it") and bool(running.lives("store")))
    os.kill(int(running.lives("mixed-0")[0][1]), signal.SIGKILL)
    running.until(lambda: len(running.lives("mixed-0")) == 2)
    assert len(running.lives("store")) == 1


@pytest.mark.parametrize("store", [{"enabled": False}, {"socket": "/run/kv/store.sock"}])
def test_no_store_is_started_where_there_is_to_be_none_or_another_one(supervise, store) -> None:
    running = supervise(store=store)
    running.until(lambda: running.saw("ready it"))
    assert running.lives("store") == []
    running.until(lambda: "store=None" in running.heard("gateway"))
    running.process.send_signal(signal.SIGTERM)
    assert running.code() == 0


def test_a_role_that_an_operator_gave_is_said_to_every_gateway(supervise) -> None:
    running = supervise({"gateway": "role mixed-0 decode\nserve"}, cluster={"mixed": 2})
    running.until(lambda: "pinned=True" in running.heard("gateway"))
    (running.folder / "gateway.heard").unlink()
    os.kill(int(running.lives("gateway")[0][1]), signal.SIGKILL)
    running.until(lambda: "pinned=True" in running.heard("gateway"))
    last = running.heard("gateway").splitlines()[-1]
    assert last.count("pinned=True") == 1
