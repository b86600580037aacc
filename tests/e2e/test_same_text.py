"""Whatever the shape of a cluster, it writes the same: to the last bit of each log-probability.

In the shapes with prefill workers, each prompt is computed by one process and continued by another.
That this happened is part of each test: an answer that nobody handed over proves nothing.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from completions import ask, ask_all
from e2e_process import SHAPES, Metrics, Served, at_rest, config_file, joined

from antiphon.testing.text_corpus import CORPUS
from command_here import run_here

Cluster = Callable[[str], Served]
Choices = list[dict[str, Any]]
LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 333, 511, 512, 513, 700, 1025, 1500)
"""Of prompts in tokens: around pages of 16, blocks of 64 and steps of 512."""


def bodies(model: str, prompts: list[Any], max_tokens: int) -> list[dict[str, Any]]:
    """Each prompt greedy and with a seed; some with several sequences, some with scores."""
    asked: list[dict[str, Any]] = []
    for number, prompt in enumerate(prompts):
        for sampling in (
            {"temperature": 0},
            {"temperature": 0.9, "top_p": 0.95, "seed": number, "n": 1 + number % 3},
        ):
            body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, **sampling}
            if number % 2:
                body["logprobs"] = number % 5
            asked.append(body)
    return asked


def tiny_bodies() -> list[dict[str, Any]]:
    chance = random.Random(4)
    ids = [[chance.randrange(3, 260) for _ in range(length)] for length in LENGTHS]
    asked = bodies("tiny", [*filter(None, CORPUS), *ids], max_tokens=12)
    return [{**body, "ignore_eos": bool(number % 4)} for number, body in enumerate(asked)]


class Moved:
    """What a cluster handed over since this was made."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._before = served.metrics()

    def __call__(self) -> dict[str, int]:
        after: Metrics = self._served.until_metrics(at_rest)
        return {
            name: int(after(f"antiphon_{name}_total") - self._before(f"antiphon_{name}_total"))
            for name in (
                "offers",
                "pulls",
                "failed_pulls",
                "pulled_tokens",
                "recomputed_tokens",
                "local_prefills",
                "retries",
            )
        }


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> list[Choices]:
    """What one mixed worker answers."""
    return ask_all(cluster("1M"), tiny_bodies())


def test_prompts_of_many_kinds_are_asked(alone: list[Choices]) -> None:
    """What the comparison below is worth: texts differ, end in both ways, and have scores."""
    asked = tiny_bodies()
    assert len(asked) > 60
    texts = [choice["text"] for choices in alone for choice in choices]
    assert len(set(texts)) > len(texts) // 2
    assert {choice["finish_reason"] for choices in alone for choice in choices} >= {"length"}
    assert sum(choices[0]["logprobs"] is not None for choices in alone) > 20
    assert sum(len(choices) > 1 for choices in alone) > 20


def test_streamed_and_whole_are_the_same(cluster: Cluster, alone: list[Choices]) -> None:
    assert ask_all(cluster("1M"), tiny_bodies(), streamed=True) == alone


@pytest.mark.parametrize(
    ("shape", "started", "change"),
    [
        ("1P1D", "1P1D", ()),
        ("1P2D", "1P2D", ()),
        ("2P1D", "1P2D", ("role", "decode-1", "prefill")),
    ],
    ids=["1P1D", "1P2D", "2P1D"],
)
def test_split_over_processes_the_text_is_the_same(
    cluster: Cluster, alone: list[Choices], shape: str, started: str, change: tuple[str, ...]
) -> None:
    served, asked = cluster(started), tiny_bodies()
    with changed(served, change):
        assert shape_of(served) == shape
        moved = Moved(served)
        assert ask_all(served, asked) == alone
        counts = moved()
        assert counts["local_prefills"] == counts["recomputed_tokens"] == counts["retries"] == 0
        assert counts["offers"] == counts["pulls"] > len(asked) * 0.9, "few end with one token"
        assert counts["pulled_tokens"] > sum(LENGTHS) / 4, "what decode had before is not moved"
        assert ask_all(served, asked, streamed=True) == alone
        assert moved()["offers"] == 2 * counts["offers"]


@contextlib.contextmanager
def changed(served: Served, change: tuple[str, ...]) -> Iterator[None]:
    """Meanwhile a worker is drained or has another role."""
    if not change:
        yield
        return
    (own,) = (w["role"] for w in served.status()["workers"] if w["id"] == change[1])
    for order in (change, ("role", change[1], own)):
        done = run_here(*order, "--url", served.url)
        assert done.returncode == 0, done.stderr
        if order == change:
            yield


def shape_of(served: Served) -> str:
    """The workers that take requests, by role."""
    roles = [w["role"] for w in served.status()["workers"] if w["health"] != "draining"]
    return "".join(f"{roles.count(role)}{role[0].upper()}" for role in ("prefill", "decode"))


# ── SmolLM2 ──────────────────────────────────────────────────────────────────────────────────

TALE = (
    "It was late in the year when the caravan reached the river, and the ferryman had gone home. "
    "They made a fire, counted what was left of the flour, and told each other what they would do "
)


def smollm_bodies() -> list[dict[str, Any]]:
    prompts = ["Water is", "The capital of France is", CORPUS[2], TALE * 4, TALE * 12, TALE * 34]
    return bodies("smollm2-135m", prompts, max_tokens=12)


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Three workers, whose roles a test changes. Nothing is cached: each prompt is moved."""
    file = config_file(
        tmp_path_factory.mktemp("smollm") / "cluster.toml",
        model={"name": "smollm2-135m"},
        http={"port": 0},
        kv={"memory_bytes": "128MiB", "prefix_cache": False},
        cluster={"prefill": 1, "decode": 2},
        router={"tpot_s": 0.001},
    )
    served = Served("serve", str(file))
    served.until(joined)
    yield served
    assert served.stop() == 0, "".join(served.output)


@pytest.fixture(scope="module")
def smollm_alone(server: Served) -> list[Choices]:
    return ask_all(server, smollm_bodies())


@pytest.mark.parametrize(
    ("shape", "change"),
    [
        ("1P2D", ()),
        ("2P1D", ("role", "decode-1", "prefill")),
        ("1P1D", ("drain", "decode-1")),
    ],
    ids=["1P2D", "2P1D", "1P1D"],
)
def test_smollm2_writes_the_same(
    smollm: Served, smollm_alone: list[Choices], shape: str, change: tuple[str, ...]
) -> None:
    with changed(smollm, change):
        assert shape_of(smollm) == shape
        moved = Moved(smollm)
        assert ask_all(smollm, smollm_bodies()) == smollm_alone
        counts = moved()
    assert counts["offers"] == counts["pulls"] == len(smollm_alone)
    assert counts["local_prefills"] == counts["recomputed_tokens"] == 0
    assert counts["pulled_tokens"] > 3000, counts


def test_smollm2_streamed_is_the_same(smollm: Served, smollm_alone: list[Choices]) -> None:
    assert ask_all(smollm, smollm_bodies(), streamed=True) == smollm_alone


def test_by_default_a_long_prompt_is_handed_over_and_a_short_one_is_not(
    serve: Callable[..., Served],
) -> None:
    """Without any setting: what the router was made for happens."""
    served = serve(*SHAPES["1P1D"])
    served.until(joined)
    moved = Moved(served)
    ask(served, model="tiny", prompt="Hi", max_tokens=4, ignore_eos=True)
    assert (moved()["local_prefills"], moved()["offers"]) == (1, 0)
    ask(served, model="tiny", prompt=[9] * 1500, max_tokens=4, ignore_eos=True)
    assert (moved()["local_prefills"], moved()["pulls"]) == (1, 1)
    assert moved()["pulled_tokens"] >= 1500
    assert served.stop() == 0
