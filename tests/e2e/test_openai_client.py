"""The official client against a real server with a real model."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from antiphon import LLM, SamplingParams

ROOT = Path(__file__).parents[2]
QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(server: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_chat_whole_and_streamed_say_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="smollm2-135m", messages=QUESTION, temperature=0, max_tokens=32
    )
    text = whole.choices[0].message.content or ""
    assert "Paris" in text
    assert whole.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(
        model="smollm2-135m",
        messages=QUESTION,
        temperature=0,
        max_tokens=32,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len(chunks) > 5


def test_completion_whole_and_streamed_say_the_same(client: openai.OpenAI) -> None:
    whole = client.completions.create(
        model="smollm2-135m", prompt="The capital of France is", temperature=0, max_tokens=8
    )
    assert "Paris" in whole.choices[0].text
    stream = client.completions.create(
        model="smollm2-135m",
        prompt="The capital of France is",
        temperature=0,
        max_tokens=8,
        stream=True,
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_errors_reach_the_client_as_its_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2-135m", messages=QUESTION, temperature=9)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="smollm2-135m", prompt="x " * 9000)
    assert caught.value.code == "context_length_exceeded"


def test_the_python_api_draws_the_same_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="smollm2-135m", prompt="Once upon a time", seed=11, temperature=0.9, max_tokens=24
    )
    with LLM("smollm2-135m", kv_memory="64MB") as llm:
        result = llm.generate(
            "Once upon a time", SamplingParams(seed=11, temperature=0.9, max_tokens=24)
        )[0]
    assert result.outputs[0].text == answer.choices[0].text
    assert answer.usage is not None
    assert len(result.outputs[0].token_ids) == answer.usage.completion_tokens


def test_every_metric_is_documented_and_every_documented_one_is_there(server: Any) -> None:
    page = httpx.get(f"{server.url}/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\S+) (counter|gauge|histogram)$", page, re.M))
    text = (ROOT / "docs/reference/metrics.md").read_text()
    documented = dict(re.findall(r"^\| `(\S+)` \| (counter|gauge|histogram) \|", text, re.M))
    assert documented == kinds


def test_every_route_is_documented(server: Any) -> None:
    routes = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    text = (ROOT / "docs/reference/http.md").read_text()
    assert len(routes) > 8
    for route, methods in routes.items():
        for method in methods:
            plain = re.sub(r"\{\w+(:path)?\}", "{id}", route)
            assert f"`{method.upper()} {plain}`" in text, f"{method} {route}"


def test_the_examples_run(server: Any) -> None:
    chat = subprocess.run(
        [sys.executable, ROOT / "examples/01_chat.py", f"{server.url}/v1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Paris" in chat.stdout
    curl = subprocess.run(
        [ROOT / "examples/03_curl.sh", server.url], capture_output=True, text=True, timeout=120
    )
    assert curl.returncode == 0, curl.stderr
    assert "Paris" in curl.stdout
    assert "data: [DONE]" in curl.stdout


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/02_python_api.py"), run_name="__main__")
    assert capsys.readouterr().out.count("Paris") == 2
