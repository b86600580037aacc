"""`antiphon kv cost`: what it prints follows from what it was told, and it says what that was."""

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from antiphon.checkpoint import resolve
from antiphon.cli.app import Commands
from antiphon.cli.kv_cost import bytes_text, cost, share_text, time_text
from antiphon.perf.hardware import MODELS, ModelShape

app = typer.Typer(cls=Commands)
app.command()(cost)
app.command("other")(lambda: None)  # with one command alone typer has no subcommands


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["cost", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_one_mi300x_serving_deepseek_r1_in_fp16() -> None:
    told = answer("deepseek-r1", "--devices", "1")
    assert told["bytes_per_token"] == 70_272
    assert (
        told["device_bytes_per_day"] == told["bytes_per_day"] == pytest.approx(15.18e12, rel=1e-3)
    )


def test_without_options_ssd_pays_from_about_one_percent_on_and_memory_does_not() -> None:
    ssd, memory = answer()["cases"]
    assert ssd["break_even_hit_rate"] == pytest.approx(0.0086, rel=0.01)
    assert memory["break_even_hit_rate"] == pytest.approx(0.342, rel=0.01)
    text = run().output
    assert "pays for itself from 0.86 % on" in text
    assert "saves" in text
    assert "loses" in text


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("--devices", "3", "3 devices"),
        ("--tokens-per-s", "1234", "1,234 tokens/s"),
        ("--busy", "0.5", "busy 50% of the time"),
        ("--device-price", "7.5", "7.5 an hour"),
        ("--value-bits", "8", "8 bits each"),
        ("--codec-ratio", "4", "stored in 1/4 of it"),
        ("--capacity", "5TB", "5 TB of SSD"),
        ("--ssd-price", "0.08", "at 0.08 for a GB and month"),
        ("--ram-price", "3", "at 3 for a GB and month"),
        ("--hit-rate", "0.37", "37 % of all tokens"),
        ("--keep", "10min", "holds 10 min of this traffic"),
    ],
)
def test_every_assumption_can_be_changed_and_is_printed(
    option: str, value: str, shown: str
) -> None:
    assert shown not in run().output
    assert shown in run(option, value).output


def test_a_codec_saves_storage_when_blocks_stay_as_long() -> None:
    def rates(*arguments: str) -> list[float]:
        return [c["break_even_hit_rate"] for c in answer("--keep", "1h", *arguments)["cases"]]

    raw, packed = rates(), rates("--codec-ratio", "4")
    assert packed == pytest.approx([rate / 4 for rate in raw])


def test_a_model_file_says_itself_what_it_keeps() -> None:
    path = str(resolve("smollm2-135m"))
    told = answer(path)
    assert told["model"]["source"] == path
    assert told["bytes_per_token"] == answer("smollm2-135m")["bytes_per_token"] == 23_040


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deepseek-r2",), "did you mean deepseek-r1?"),
        (("no-such-thing",), "--list shows those known by name"),
        (("--capacity", "much"), '--capacity "much": must be a size such as 500GB or 2TB'),
        (("--capacity", "0TB"), "must be a size"),
        (("--keep", "soon"), '--keep "soon": must be a time such as 500ms, 30s'),
        (("--keep", "0s"), "must be a time"),
        (("--keep", ""), "must be a time"),
        (("--capacity", ""), "must be a size"),
        (("--keep", "10min", "--capacity", "2TB"), "--keep and --capacity both say"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--busy", "--hit-rate", "--devices", "--codec-ratio"])
def test_numbers_have_limits(option: str) -> None:
    assert run(option, "-1").exit_code == 2
    assert run(option, "nan").exit_code == 2


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_catalogue_of_performance_models_is_what_is_known_by_name(model: ModelShape) -> None:
    told = answer(model.name)
    assert told["bytes_per_token"] == model.layers * model.kv_values_per_token * 2
    assert told["traffic"]["tokens_per_s"] == (2_500 if model.parameters > 50e9 else 30_000)


def test_the_list_names_sources() -> None:
    text = run("--list").output
    assert [line.split()[0] for line in text.splitlines()] == [model.name for model in MODELS]
    assert "hf.co/deepseek-ai/DeepSeek-R1" in text


def test_numbers_are_short() -> None:
    assert [bytes_text(size) for size in (0, 70_272, 15.18e12, 999.6, 3e15)] == [
        "0 B",
        "70.3 kB",
        "15.2 TB",
        "1 kB",
        "3 PB",
    ]
    assert [time_text(s) for s in (0.5, 90, 7200, 86_400 * 3)] == [
        "0.5 s",
        "1.5 min",
        "2 h",
        "3 days",
    ]
    assert share_text(0.0043) == "0.43 %"
