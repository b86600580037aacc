"""`antiphon kv profile` and `antiphon kv compress` on a tiny model: from a text to numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.store.codec import read_kv_profile
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder

TEXT = "".join(
    f"The {n}th sentence of a text that a model of this size can't know. " for n in range(90)
)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["kv", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, another one, a text, and the model's profile."""
    place = tmp_path_factory.mktemp("codec")
    for name, seed in (("tiny", 1), ("other", 2)):
        write_hf_folder(place / name, TINY_SPEC, random_tensors(TINY_SPEC, seed))
    (place / "text.txt").write_text(TEXT)
    made = run(
        "profile", place / "tiny", "--text", place / "text.txt", "-o", place / "tiny.kvprofile"
    )
    assert made.exit_code == 0, made.output
    assert "entropy-5" in made.output
    return place


def test_a_profile_is_made_of_a_text(folder: Path) -> None:
    made = read_kv_profile(folder / "tiny.kvprofile")
    assert (made.layers, made.heads, made.width) == (2, 2, 16)
    assert len(made.levels) == 5
    again = run(
        *("profile", folder / "tiny", "--text", folder / "text.txt", "--json"),
        *("-o", folder / "again.kvprofile"),
    )
    assert json.loads(again.stdout)["id"] == made.id.hex()


def test_levels_are_compared(folder: Path) -> None:
    common = ("compress", folder / "tiny", "--text", folder / "text.txt", "--contexts", 3)
    sizes = ("--tokens", 128, "--following", 16, "--profile", folder / "tiny.kvprofile")
    done = run(*common, *sizes, "--json")
    assert done.exit_code == 0, done.output
    found = {one["trial"]["name"]: one["trial"] for one in json.loads(done.stdout)}
    assert list(found) == ["lossless", "int8", "int4", *(f"entropy-{n}" for n in range(1, 6))]
    assert found["lossless"]["divergence"] == 0
    assert found["lossless"]["top1"] == 1
    assert found["lossless"]["perplexity"] == found["lossless"]["exact_perplexity"]
    assert found["int8"]["divergence"] < found["int4"]["divergence"]
    assert found["entropy-1"]["divergence"] < found["entropy-5"]["divergence"]
    assert found["entropy-1"]["bits"] > found["entropy-5"]["bits"]
    table = run(*common, *sizes, "-l", "int8", "-l", "raw").stdout
    assert [line.split()[0] for line in table.splitlines()] == ["level", "int8", "raw", "48"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("compress", "tiny", "-l", "int9"), 'codec level "int9"'),
        (("compress", "tiny", "-l", "entropy-1"), "needs the model's profile"),
        (("compress", "tiny", "--profile", "text.txt"), "--profile text.txt: is no profile"),
        (
            ("compress", "other", "--profile", "tiny.kvprofile", "--tokens", "64"),
            "the profile is of",
        ),
        (("compress", "tiny", "--tokens", "300"), "more than the context"),
        (
            (
                "compress",
                "tiny",
                "--profile",
                "tiny.kvprofile",
                "-l",
                "entropy-9",
                "--tokens",
                "64",
            ),
            "entropy-1 … entropy-5",
        ),
        (("compress", "tiny", "--text", "none.txt"), "none.txt: can't be read"),
        (("profile", "tiny", "--text", "short.txt"), "give more"),
        (("profile", "tiny", "-o", "."), "can't be written"),
    ],
)
def test_what_can_t_be_done_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "short.txt").write_text("Too short.")
    text = () if "--text" in arguments or "-o" in arguments else ("--text", "text.txt")
    done = run(arguments[0], f"./{arguments[1]}", *arguments[2:], *text)
    assert done.exit_code == 2, done.output
    assert told in done.stderr
    assert done.stderr.splitlines()[-1].startswith("antiphon: ")
