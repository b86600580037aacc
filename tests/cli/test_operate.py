"""The commands for a running server, against one that is scripted."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.errors import PeerError
from antiphon.live.admin import client as client_module

WORKER = {
    "id": "decode-0",
    "role": "decode",
    "health": "joined",
    "pid": 12,
    "cores": [2, 3],
    "running": 5,
    "waiting": 0,
    "kv_used": 0.256,
    "incarnation": "x",
    "life": 1,
    "problem": "",
}
DEAD = {
    **dict.fromkeys(("pid", "running", "waiting", "kv_used", "incarnation")),
    "id": "prefill-0",
    "role": "prefill",
    "health": "waiting",
    "cores": [],
    "life": 3,
    "problem": "killed by SIGKILL",
}
STATUS: dict[str, Any] = {
    "model": "tiny",
    "version": "0.1.0",
    "state": "ready",
    "gateway_pid": 7,
    "open_requests": 5,
    "workers": [DEAD, WORKER],
}


class Server:
    """Stands in for `AdminClient`; `asked` lists the orders."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.status = STATUS
        self.fails_at: str | None = None

    def get(self, path: str) -> Any:
        assert path == "/admin/status"
        return self.status

    def order(self, worker: str, deed: str, timeout_s: float, **more: str) -> Any:
        if worker == self.fails_at:
            raise PeerError(f"{worker} did not join")
        self.asked.append((worker, deed, timeout_s, more))
        return {**WORKER, "id": worker}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(client_module, "find_server", lambda url, token: found)
    return found


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="antiphon")


def test_status_is_a_table_for_people(server: Server) -> None:
    lines = run("status").output.splitlines()
    assert lines[0] == "tiny: ready, 5 open requests (Antiphon 0.1.0, gateway pid 7)"
    [dead] = [line.split() for line in lines if "prefill-0" in line]
    [good] = [line.split() for line in lines if "decode-0" in line]
    assert good == ["decode-0", "decode", "joined", "12", "2,3", "5", "0", "26%", "1"]
    assert dead == [
        "prefill-0",
        "prefill",
        "waiting",
        "–",
        "all",
        "–",
        "–",
        "–",
        "3",
        "killed",
        "by",
        "SIGKILL",
    ]


def planner(mode: str = "act", *, withheld: str = "") -> dict[str, Any]:
    shared = {"needed": {"decode": 3}, "expected_per_s": 4.0}
    newest = {"ago_s": 1.2, "target": {"prefill": 1, "decode": 2}, "moves": [], "reason": "calm"}
    moved = {"ago_s": 31.0, "target": {"decode": 2}, "moves": ["add 1 decode"], "reason": "queue"}
    decisions = [{**shared, **newest}, {**shared, **moved}]
    return {"mode": mode, "budget": 4, "withheld": withheld, "ready_s": 7.0, "decisions": decisions}


def test_status_says_what_the_planner_wants_and_why(server: Server) -> None:
    server.status = {**STATUS, "planner": planner()}
    assert run("status").output.splitlines()[-2:] == [
        "planner (act, at most 4 workers) wants 1 prefill and 2 decode: calm",
        "  31 s ago: add 1 decode (queue)",
    ]
    server.status = {**STATUS, "planner": planner("advise", withheld="decode-1: no memory")}
    assert run("status").output.splitlines()[-3:] == [
        "planner (advise, at most 4 workers) wants 1 prefill and 2 decode: calm",
        "  not added: decode-1: no memory",
        "  31 s ago: would add 1 decode (queue)",
    ]
    server.status = {**STATUS, "planner": {**planner(), "decisions": []}}
    assert run("status").output.splitlines()[-1].endswith("it has decided nothing yet")


def test_status_is_json_for_scripts(server: Server) -> None:
    assert json.loads(run("status", "--json").output) == STATUS


def test_drain_and_role(server: Server) -> None:
    assert "decode-0 is drained" in run("drain", "decode-0", "--timeout", "5").output
    assert run("role", "decode-0", "prefill").output == "decode-0 is a prefill worker\n"
    assert server.asked == [
        ("decode-0", "drain", 5.0, {}),
        ("decode-0", "role", 120.0, {"role": "prefill"}),
    ]


def test_restart_is_for_all_in_turn_or_for_those_that_are_named(server: Server) -> None:
    assert run("restart").output.splitlines() == [
        "prefill-0 is back (pid 12)",
        "decode-0 is back (pid 12)",
    ]
    run("restart", "decode-0", "--timeout", "1")
    assert [asked[:3] for asked in server.asked] == [
        ("prefill-0", "restart", 120.0),
        ("decode-0", "restart", 120.0),
        ("decode-0", "restart", 1.0),
    ]


def test_a_restart_leaves_workers_of_other_hosts_to_their_hosts(server: Server) -> None:
    here, far = {**WORKER, "host": "box1"}, {**WORKER, "id": "box2.decode-0", "host": "box2"}
    server.status = {**STATUS, "workers": [far, here]}
    said = "box2.decode-0 runs on host box2: restart it there"
    every = run("restart")
    assert (every.exit_code, said in every.output) == (0, True)
    named = run("restart", "decode-0", "box2.decode-0")
    assert (named.exit_code, said in named.stderr) == (2, True)
    assert [asked[0] for asked in server.asked] == ["decode-0"]


def test_the_store_is_restarted_by_its_name_where_there_is_one(server: Server) -> None:
    assert run("restart", "store").exit_code == 2
    server.status = {**STATUS, "store": {"health": "ready", "pid": 9, "life": 1, "problem": ""}}
    assert run("restart", "store").exit_code == 0
    assert [order[:2] for order in server.asked] == [("store", "restart")]


def test_a_wrong_name_restarts_nobody(server: Server) -> None:
    result = run("restart", "decode-0", "decode-7")
    assert result.exit_code == 2
    assert "no worker decode-7: there are prefill-0, decode-0" in result.stderr
    assert server.asked == []


def test_a_restart_that_fails_leaves_the_others_alone(server: Server) -> None:
    server.fails_at = "prefill-0"
    result = run("restart")
    assert (result.exit_code, result.stderr) == (1, "antiphon: prefill-0 did not join\n")
    assert server.asked == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("role", "decode-0", "boss"),
        ("role", "decode-0"),
        ("drain",),
        ("drain", "decode-0", "--timeout", "-1"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_anybody_is_asked(
    server: Server, arguments: tuple[str, ...]
) -> None:
    assert run(*arguments).exit_code == 2
    assert server.asked == []


def test_who_can_not_be_found_is_exit_code_1_or_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    nobody = run("status")
    assert nobody.exit_code == 1
    assert "start one with `antiphon serve`" in nobody.stderr
    foreign = run("status", "--url", "http://127.0.0.1:1")
    assert foreign.exit_code == 2
    assert "--token-file" in foreign.stderr
