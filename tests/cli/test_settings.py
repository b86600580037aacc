"""A file, then options over it: one configuration, and errors that name the file."""

from pathlib import Path

import pytest

from antiphon.cli.settings import file_or_model, load, parse_cores
from antiphon.errors import ConfigError
from antiphon.types import Config


def test_options_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[http]\nport = 1\nkeep_alive_s = 3\n[kv]\nmemory_bytes = "1GiB"\n')
    config = load(file, {("http", "port"): 2, ("http", "host"): None, ("model", "name"): "x"})
    assert (config.http.port, config.http.keep_alive_s) == (2, 3.0)
    assert (config.kv.memory_bytes, config.model.name) == (2**30, "x")
    assert config.http.host == Config().http.host


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[kv]\nmemory = 3\n", 'unknown key "memory" in [kv]: did you mean memory_bytes in [kv]?'),
        (b"kv = 3\n", "[kv] = 3: must be a table"),
        (b"[kv\n", "is not valid TOML"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[http]\nport = 1979-05-27\n", "http.port = a date: must be an integer"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "bad.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file, {("kv", "page_tokens"): 1})
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "cores"), [("0,1", (0, 1)), ("0-3,6", (0, 1, 2, 3, 6)), ("5", (5,)), (None, None)]
)
def test_cores(text: str | None, cores: tuple[int, ...] | None) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "99999999999999999999", "٣"])
def test_bad_cores(text: str) -> None:
    with pytest.raises(ConfigError, match="--cores"):
        load(None, {("engine", "cores"): parse_cores(text)})


def test_an_argument_that_is_a_configuration_file() -> None:
    assert file_or_model("cluster.toml", None) == (Path("cluster.toml"), None)
    assert file_or_model("model.gguf", Path("a.toml")) == (Path("a.toml"), "model.gguf")
    assert file_or_model(None, None) == (None, None)
    with pytest.raises(ConfigError, match="give one configuration file"):
        file_or_model("cluster.toml", Path("a.toml"))
