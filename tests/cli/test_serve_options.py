"""What the options of `antiphon serve` mean for its configuration."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from antiphon.cli.app import app
from antiphon.cli.serve_options import config_of
from antiphon.errors import UsageError
from antiphon.types import Config

OPTIONS: dict[str, tuple[str, Any, Any]] = {
    "served_model_name": ("model.served_name", "it", "it"),
    "quantize": ("model.quantize", "none", "none"),
    "dtype": ("model.dtype", "fp16", "fp16"),
    "max_model_len": ("model.max_model_len", 99, 99),
    "kv_memory": ("kv.memory_bytes", "3GiB", 3 * 2**30),
    "page_tokens": ("kv.page_tokens", 32, 32),
    "kv_dtype": ("kv.dtype", "bf16", "bf16"),
    "max_num_seqs": ("scheduler.max_num_seqs", 7, 7),
    "max_batched_tokens": ("scheduler.max_batched_tokens", 777, 777),
    "prefill": ("cluster.prefill", 1, 1),
    "decode": ("cluster.decode", 3, 3),
    "mixed": ("cluster.mixed", 2, 2),
    "host": ("http.host", "127.0.0.2", "127.0.0.2"),
    "port": ("http.port", 9, 9),
    "api_key_file": ("http.api_key_file", "k", "k"),
    "cores": ("engine.cores", "0-2", (0, 1, 2)),
    "device": ("engine.device", "cuda:1", "cuda:1"),
    "store": ("store.enabled", "off", False),
    "store_memory": ("store.memory_bytes", "5GiB", 5 * 2**30),
    "store_disk": ("store.disk_bytes", "3GiB", 3 * 2**30),
    "store_dir": ("store.dir", "/d", "/d"),
    "store_key_file": ("store.at_rest_key_file", "/k", "/k"),
    "keys": ("network.keys", "/keys", "/keys"),
    "profile": ("router.profile", "p", "p"),
    "planner": ("planner.mode", "advise", "advise"),
    "budget": ("planner.budget", 5, 5),
    "decision_log": ("log.decisions", "d", "d"),
    "request_log": ("log.requests", "r", "r"),
    "model": ("model.name", "m", "m"),
}
BESIDE = {"store_dir": {"store_disk": "1GiB"}, "budget": {"planner": "advise"}}
BESIDE["store_key_file"] = BESIDE["store_dir"]
BESIDE["budget"] |= {"prefill": 1, "decode": 1}  # pyright: ignore
BESIDE["prefill"] = {"decode": 1}  # pyright: ignore


def words(**given: Any) -> dict[str, Any]:
    return dict.fromkeys((*OPTIONS, "config"), None) | given


def test_each_option_is_a_key_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    file.write_text('[network]\naddresses = ["127.0.0.1"]\n')
    beside = {**BESIDE, "keys": {"config": file}}
    command: Any = typer.main.get_command(app)
    options = {one.name for one in command.commands["serve"].params} - {"config", "help"}
    assert options == OPTIONS.keys()
    for option, (key, text, value) in OPTIONS.items():
        table, name = key.split(".")
        config = config_of(words(**beside.get(option, {}), **{option: text}))
        assert getattr(getattr(config, table), name) == value, option
        assert getattr(getattr(Config(), table), name) != value, "it says nothing"


def test_a_budget_without_a_planner_is_refused_naming_both(tmp_path: Path) -> None:
    """It had no effect, and nobody said so. A file may say who plans."""
    result = CliRunner().invoke(app, ["serve", "--budget", "4"])
    assert result.exit_code == 2
    assert "--budget 4 has no effect while the planner is off" in result.output
    assert "--planner act" in result.output
    file = tmp_path / "cluster.toml"
    file.write_text('[planner]\nmode = "advise"\n')
    assert config_of(words(config=file, budget=4)).planner.budget == 4
    with pytest.raises(UsageError, match="--budget 4 has no effect"):
        config_of(words(config=file, budget=4, planner="off"))
