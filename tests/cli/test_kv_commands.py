"""`antiphon kv …`, against a server that is scripted."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.errors import PeerError, UsageError
from antiphon.live.admin import client as client_module

TIER = {
    "tier": "host",
    "blocks": 1200,
    "used_bytes": 3 * 2**20,
    "limit_bytes": 2**30,
    "pinned_blocks": 5,
    "leases": 1,
    "put_blocks_total": 4000,
    "hit_blocks_total": 300,
    "missed_blocks_total": 20,
    "evicted_blocks_total": 2800,
    "dropped": {"quota": 12, "stale": 0},
}
WORKER = {
    "worker": "mixed-0",
    "role": "mixed",
    "cached_tokens": 6400,
    "held_tokens": 128,
    "limit_tokens": 10_000,
    "queried_tokens_total": 200,
    "hit_tokens_total": 50,
    "fetched_tokens_total": 1280,
}
STATS = {
    "store": "ready",
    "tiers": [TIER],
    "workers": [WORKER],
    "index": {"blocks": 1300, "holders": 2, "behind": 0},
}
LOOKUP = {
    "tokens": 1000,
    "blocks": 15,
    "block_tokens": 64,
    "store": "ready",
    "places": [
        {"tenant": None, "holder": "mixed-0", "tier": "device", "blocks": 0, "tokens": 0},
        {"tenant": None, "holder": "store", "tier": "host", "blocks": 10, "tokens": 640},
    ],
}


class Server:
    """Stands in for `AdminClient`; `asked` lists what was posted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], float]] = []
        self.answers: dict[str, Any] = {"lookup": LOOKUP}
        self.blocks = 10
        self.note = ""
        self.fails: Exception | None = None

    def get(self, path: str) -> Any:
        assert path == "/admin/kv/stats"
        return STATS

    def post(self, path: str, body: dict[str, Any], timeout_s: float) -> Any:
        deed = path.removeprefix("/admin/kv/")
        self.asked.append((deed, body, timeout_s))
        if self.fails is not None:
            raise self.fails
        asked = 15 if body["prompt"] is not None else None
        done = {"op": deed, "asked": asked, "blocks": self.blocks, "tokens": 64 * self.blocks}
        done["note"] = self.note
        return self.answers.get(deed, done)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(client_module, "find_server", lambda url, token: found)
    return found


def run(*arguments: str, input: str | None = None) -> Any:
    return CliRunner().invoke(app, ["kv", *arguments], prog_name="antiphon", input=input)


def cells(output: str, word: str) -> list[str]:
    [line] = [line for line in output.splitlines() if line.split()[:1] == [word]]
    return line.split()


def test_stats_are_tables_for_people(server: Server) -> None:
    output = run("stats").output
    host = ["host", "1,200", "3.0", "MiB", "1.0", "GiB", "5", "1", "4,000", "300", "20", "2,800"]
    assert cells(output, "host") == [*host, "quota", "12"]
    assert cells(output, "mixed-0")[1:] == ["mixed", "128", "6,400", "10,000", "25%", "1,280"]
    assert "1,300 different blocks of 2 holders" in output


def test_json_is_what_the_server_says(server: Server) -> None:
    assert json.loads(run("stats", "--json").output) == STATS
    assert json.loads(run("lookup", "--text", "x", "--json").output) == LOOKUP
    assert json.loads(run("pin", "--text", "x", "--json").output)["blocks"] == 10


def test_lookup_says_how_much_is_where(server: Server) -> None:
    output = run("lookup", "--text", "a long text").output
    assert "The prompt has 1,000 tokens; 960 of them, 15 blocks of 64, can be kept." in output
    assert cells(output, "mixed-0") == ["mixed-0", "device", "0", "0%"]
    assert cells(output, "store") == ["store", "host", "640", "64%"]
    assert "tenant" not in output


def test_with_keys_lookup_says_whose(server: Server) -> None:
    places = [{**place, "tenant": 2} for place in LOOKUP["places"]]
    server.answers["lookup"] = {**LOOKUP, "places": places, "store": "away"}
    output = run("lookup", "--text", "x", "--tenant", "2").output
    rows = [line.split() for line in output.splitlines() if line.startswith(" 2 ")]
    assert rows == [["2", "mixed-0", "device", "0", "0%"], ["2", "store", "host", "640", "64%"]]
    assert "store is away" in output
    assert server.asked[-1][1]["tenant"] == 2


def test_prompts_are_named_in_four_ways(server: Server, tmp_path: Path) -> None:
    text, chat = tmp_path / "prompt.txt", tmp_path / "chat.json"
    text.write_text("Once upon\na time", "utf-8")
    messages = [{"role": "user", "content": "hi"}]
    chat.write_text(json.dumps({"messages": messages, "temperature": 0}))
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(messages))
    run("lookup", "--text", "plain")
    run("lookup", "--file", str(text))
    run("lookup", "--file", "-", input="from stdin")
    run("lookup", "--tokens", "1,2, 3")
    run("lookup", "--tokens", "[4,5]")
    run("lookup", "--chat", str(chat))
    run("lookup", "--chat", str(listed))
    assert [order["prompt"] for _, order, _ in server.asked] == [
        {"text": "plain"},
        {"text": "Once upon\na time"},
        {"text": "from stdin"},
        {"tokens": [1, 2, 3]},
        {"tokens": [4, 5]},
        {"chat": {"model": "", "messages": messages, "temperature": 0}},
        {"chat": {"model": "", "messages": messages}},
    ]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("pin", "10 of 15 blocks pinned (640 tokens)"),
        ("unpin", "10 of 15 blocks unpinned (640 tokens)"),
        ("prefetch", "10 of 15 blocks in the store's memory (640 tokens)"),
        ("move", "10 of 15 blocks moved (640 tokens)"),
    ],
)
def test_what_was_done_is_said(server: Server, command: str, said: str) -> None:
    more = ("--to", "disk") if command == "move" else ()
    result = run(command, "--text", "x", "--timeout", "7", *more)
    assert (result.exit_code, result.output) == (0, said + "\n")
    [(deed, order, timeout_s)] = server.asked
    assert (deed, order["timeout_s"], timeout_s) == (command, 7.0, 7.0)
    assert order.get("tier") == (more[1] if more else None)


@pytest.mark.parametrize("command", ["pin", "prefetch"])
def test_nothing_to_do_it_to_is_exit_code_1(server: Server, command: str) -> None:
    server.blocks = 0
    result = run(command, "--text", "x")
    assert result.exit_code == 1
    assert "none of the prompt's 15 blocks" in result.stderr
    assert run("unpin", "--text", "x").exit_code == 0


def test_clear_asks_unless_it_is_told_not_to(server: Server) -> None:
    assert run("clear", "--all", input="n\n").exit_code == 1
    nobody = run("clear", "--all", input="")
    assert nobody.exit_code == 2
    assert "nothing was forgotten: say --yes" in nobody.stderr
    assert server.asked == []
    assert run("clear", "--all", input="y\n").exit_code == 0
    assert run("clear", "--tenant", "3", "--yes").exit_code == 0
    assert (
        run("clear", "--text", "secret", "-y").output == "10 of 15 blocks forgotten (640 tokens)\n"
    )
    orders = [order for _, order, _ in server.asked]
    assert [(one["everything"], one["tenant"], one["prompt"]) for one in orders] == [
        (True, None, None),
        (False, 3, None),
        (False, None, {"text": "secret"}),
    ]


def test_verify_is_exit_code_1_if_something_was_wrong(server: Server) -> None:
    server.blocks = 0
    good = run("verify")
    assert (good.exit_code, good.output) == (
        0,
        "all blocks that were read are what they were when they were put\n",
    )
    server.note = "the remote tier could not be asked"
    assert run("verify").output.endswith("\nthe remote tier could not be asked\n")
    server.blocks = 3
    bad = run("verify", "--text", "x")
    assert bad.exit_code == 1
    assert "3 blocks were missing, or not what they were" in bad.stderr
    assert [order["prompt"] for _, order, _ in server.asked] == [None, None, {"text": "x"}]


def test_what_was_left_out_is_said_with_its_reason(server: Server) -> None:
    server.note = "at most half can be pinned"
    assert run("pin", "--text", "x").output == (
        "10 of 15 blocks pinned (640 tokens): at most half can be pinned\n"
    )
    server.blocks = 0
    none = run("pin", "--text", "x")
    assert (none.exit_code, none.stderr) == (1, "antiphon: at most half can be pinned\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lookup",), "--text, --file, --tokens or --chat"),
        (("pin", "--text", "a", "--tokens", "1"), "--text and --tokens name a prompt each"),
        (("pin", "--tokens", "1,x"), "must be numbers such as 1,2,3"),
        (("pin", "--tokens", "1,-2"), "-2 is no token id"),
        (("pin", "--file", "/nowhere"), "--file /nowhere: can't be read"),
        (("pin", "--chat", "/nowhere"), "--chat /nowhere: can't be read"),
        (("move", "--to", "moon", "--text", "x"), "must be host or disk"),
        (("clear",), "say what to forget"),
        (("verify", "--tenant", "1"), "leave the tenant out"),
        (("clear", "--all", "--tenant", "1"), "leave prompt and tenant out"),
        (("pin", "--text", "x", "--tenant", "0"), "--tenant"),
        (("pin", "--text", "x", "--timeout", "0"), "--timeout"),
        (("move", "--text", "x"), "--to"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_anybody_is_asked(
    server: Server, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert server.asked == []


@pytest.mark.parametrize("content", ["{", "3", '{"prompt": "x"}', "\ud800"])
def test_a_chat_that_is_none(server: Server, tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.json"
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    result = run("pin", "--chat", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr.replace("\n", "")
    assert server.asked == []


@pytest.mark.parametrize(("raised", "code"), [(UsageError("no"), 2), (PeerError("gone"), 1)])
def test_what_the_server_refuses_or_fails_at(server: Server, raised: Exception, code: int) -> None:
    server.fails = raised
    assert run("pin", "--text", "x").exit_code == code


def test_help_teaches_with_examples() -> None:
    for command in ("stats", "lookup", "pin", "unpin", "prefetch", "move", "clear", "verify"):
        assert f"antiphon kv {command}" in run(command, "--help").output
