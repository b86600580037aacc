"""The commands as a person meets them: output, errors, exit codes, and what they load."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import antiphon
import antiphon.cli.app as app_module
from antiphon.cli.app import app
from antiphon.cli.config import as_toml
from antiphon.core.config import build, entries
from antiphon.core.draws import LARGEST_SEED
from antiphon.errors import BugError, PeerError, UsageError
from antiphon.types import Config

ROOT = Path(__file__).parents[2]
CLI_REFERENCE = ROOT / "docs/reference/cli.md"
CONFIG_REFERENCE = ROOT / "docs/reference/config.md"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="antiphon")


def commands() -> list[tuple[str, Any]]:
    """(name with its parents, click command) of every command and group."""
    found: list[tuple[str, Any]] = []
    waiting = [("antiphon", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        found.append((name, command))
        waiting += [(f"{name} {sub}", c) for sub, c in getattr(command, "commands", {}).items()]
    return found


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `antiphon ARGUMENTS`."""
    script = (
        "import sys\nfrom antiphon.cli import main\nsys.argv = ['antiphon', *sys.argv[1:]]\n"
        "try:\n    main()\nfinally:\n    print('\\n' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("serve", "--help"),
        ("profile", "--help"),
        ("status", "--help"),
        ("config", "show"),
        ("models",),
    ],
)
def test_quick_commands_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(*arguments)
    assert "typer" in loaded
    heavy = {"torch", "numba", "fastapi", "uvicorn", "tokenizers", "antiphon.live", "asyncio"}
    assert not loaded & heavy


def test_version() -> None:
    assert run("--version").output == f"antiphon {antiphon.__version__}\n"


def test_no_command_prints_help() -> None:
    result = run()
    assert "serve" in result.output
    assert "config" in result.output


def test_usage_errors_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[kv]\npage_token = 1\n")
    result = run("serve", "--config", str(file))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f'antiphon: {file}: unknown key "page_token"')
    assert result.stderr.count("\n") == 1


def test_an_option_of_before_names_the_one_of_now() -> None:
    """And not the most similar one, which says something else."""
    command = ("kv", "compress")
    for words in (("--dtype", "fp32"), ("--dtype=int8",)):
        result = run(*command, *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            "antiphon: --dtype is called --quantize now: int8 stays, fp32 is none\n"
        )
    other = run(*command, "--qunatize", "int8")
    assert other.exit_code == 2
    assert "--qunatize" in other.stderr


@pytest.mark.parametrize("command", [("serve",), ("profile",), ("models", "check")])
def test_a_value_of_before_names_the_option_of_now(command: tuple[str, ...]) -> None:
    result = run(*command, "--dtype", "int8")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        'antiphon: model.dtype = "int8": write model.quantize = "int8" now (--quantize int8)\n'
    )
    without = run(*command, "--dtype")
    assert without.exit_code == 2
    assert "--quantize" not in without.stderr


@pytest.mark.parametrize(
    ("raised", "code", "stderr"),
    [
        (UsageError("a\n  b"), 2, "antiphon: a b\n"),
        (PeerError("nobody there"), 1, "antiphon: nobody there\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_expected_endings(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, stderr: str
) -> None:
    def show(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("antiphon.cli.config.load", show)
    result = run("config", "show")
    assert (result.exit_code, result.stderr) == (code, stderr)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(*_: object, **__: object) -> None:
        raise BugError("pages lost")

    monkeypatch.setattr("antiphon.cli.config.load", show)
    assert isinstance(run("config", "show").exception, BugError)
    monkeypatch.setattr(sys, "argv", ["antiphon", "config", "show"])
    with pytest.raises(BugError):
        app_module.main()


def test_config_show_is_toml_that_builds_the_same_config(tmp_path: Path) -> None:
    shown = run("config", "show").output
    assert build(tomllib.loads(shown)) == Config()
    assert all(entry.name in shown for entry in entries())
    file = tmp_path / "antiphon.toml"
    file.write_text(shown.replace("port = 8000", "port = 9000"))
    again = json.loads(run("config", "show", "--config", str(file), "--json").output)
    assert again["http"]["port"] == 9000


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_any_config_survives_toml(name: str, quantile: float) -> None:
    values = {"model": {"name": "m" + name}, "scheduler": {"output_quantile": quantile * 0.999}}
    config = build(values)
    assert build(tomllib.loads(as_toml(config))) == config


def test_every_command_and_option_is_in_the_reference() -> None:
    text = CLI_REFERENCE.read_text()
    for path, command in commands():
        name = path.removesuffix(" run") if command.hidden else path
        assert f"`{name}" in text, f"{CLI_REFERENCE} lacks the command {name}"
        section = text.split(f"## `{name}", 1)[1].split("\n## ", 1)[0]
        for parameter in command.params:
            for option in parameter.opts:
                shown = option if option.startswith("-") else option.upper()
                assert shown in section, f"{CLI_REFERENCE}: `{name}` lacks {shown}"


def test_the_reference_names_no_option_that_is_gone() -> None:
    real = {option for _, command in commands() for p in command.params for option in p.opts}
    real |= {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", CLI_REFERENCE.read_text())) <= real


def test_every_key_of_the_configuration_is_in_the_reference() -> None:
    text = CONFIG_REFERENCE.read_text()
    for entry in entries():
        section = text.split(f"## [{entry.table}]", 1)[1].split("\n## ", 1)[0]
        rows = [line for line in section.splitlines() if line.startswith(f"| `{entry.name}` |")]
        assert len(rows) == 1, f"{CONFIG_REFERENCE}: [{entry.table}] lacks {entry.name}"
        assert entry.key.meaning in rows[0]
        assert entry.allowed in rows[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_can_t_be_written_ends_with_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "antiphon", "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("antiphon: can't write: ")
    assert len(done.stderr.splitlines()) == 1


def seed_options() -> list[tuple[str, Any]]:
    return [
        (name, parameter)
        for name, command in commands()
        for parameter in command.params
        if parameter.name == "seed" or (parameter.name, name) == ("first", "antiphon sim explore")
    ]


def test_every_seed_has_the_same_bounds() -> None:
    assert {name for name, _ in seed_options()} >= {
        "antiphon bench run",
        "antiphon drill",
        "antiphon sim explore",
        "antiphon sim run",
    }
    for name, parameter in seed_options():
        assert (parameter.min, parameter.max) == (0, LARGEST_SEED), name


@pytest.mark.parametrize("seed", ["-1", str(LARGEST_SEED + 1), "9" * 400, "1e3", "x"])
@pytest.mark.parametrize(
    "command",
    [
        ("bench", "http://127.0.0.1:1", "--seed"),
        ("drill", "--dry-run", "--seed"),
        ("sim", "x.toml", "--seed"),
        ("sim", "explore", "--first"),
    ],
    ids=" ".join,
)
def test_a_seed_that_is_none_is_a_usage_error(command: tuple[str, ...], seed: str) -> None:
    result = run(*command, seed)
    assert result.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("group", ["bench", "sim"])
def test_a_command_without_a_name_of_its_own_is_called_by_its_group(group: str) -> None:
    result = run(group, "x", "--no-such-option")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Usage: antiphon {group} [OPTIONS]")
    assert f"'antiphon {group} -h'" in result.stderr
    assert f"{group} run" not in result.stderr
