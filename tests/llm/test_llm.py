"""The Python API on a tiny random model: order, errors, stops, cancels, and nothing left behind."""

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import LLM, SamplingParams
from antiphon.checkpoint import StorageType
from antiphon.errors import ClientError, ConfigError, UsageError
from antiphon.live.cache_folder import cache_folder
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.types import EngineConfig, FinishReason

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return write_hf_folder(folder, TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), kv_memory="4MiB") as llm:
        yield llm


@pytest.fixture
def llm(shared: LLM) -> Iterator[LLM]:
    """The shared model; afterwards every page must be free or cached again."""
    yield shared
    view = view_of(shared)
    assert (view.running, view.waiting, view.held_pages) == (0, 0, 0)
    assert view.free_pages + view.cached_pages == view.total_pages


def view_of(llm: LLM) -> Any:
    model = llm._model
    assert model is not None
    return model.scheduler.view(0.0)


def ids(results: list[Any]) -> list[tuple[int, ...]]:
    return [result.outputs[0].token_ids for result in results]


def test_results_come_in_order_and_do_not_depend_on_neighbours(llm: LLM) -> None:
    prompts = [f"prompt number {number}" for number in range(12)]
    together = llm.generate(prompts, GREEDY)
    assert [result.prompt for result in together] == prompts
    assert all(len(tokens) == 12 for tokens in ids(together))
    assert len(set(ids(together))) > 1
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in prompts]
    assert ids(alone) == ids(together)


def test_a_seed_gives_the_same_tokens_and_none_gives_others(llm: LLM) -> None:
    drawn = SamplingParams(temperature=1.0, seed=5, max_tokens=16, ignore_eos=True)
    first, second = llm.generate(["once", "once"], drawn)
    assert first.outputs == second.outputs
    unseeded = SamplingParams(temperature=1.5, max_tokens=16, ignore_eos=True)
    one, other = llm.generate(["once", "once"], unseeded)
    assert one.outputs != other.outputs


def test_text_and_ids_are_the_same_prompt(llm: LLM) -> None:
    by_text = llm.generate("the and", GREEDY)[0]
    by_ids = llm.generate([by_text.prompt_token_ids], GREEDY)[0]
    assert by_ids.prompt is None
    assert by_ids.outputs == by_text.outputs
    assert llm.generate(list(by_text.prompt_token_ids), GREEDY)[0].outputs == by_text.outputs


def test_n_sequences_and_logprobs(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=6, logprobs=2, ignore_eos=True)
    outputs = llm.generate("the", params)[0].outputs
    assert [output.index for output in outputs] == [0, 1, 2]
    assert len({output.token_ids for output in outputs}) > 1
    for output in outputs:
        assert output.logprobs is not None
        assert len(output.logprobs) == len(output.token_ids) == 6
        assert all(len(scored.top) == 2 and scored.chosen <= 0 for scored in output.logprobs)
    assert llm.generate("the", GREEDY)[0].outputs[0].logprobs is None


def test_a_stop_string_ends_one_sequence_and_is_cut_off(llm: LLM) -> None:
    whole = llm.generate("in the", GREEDY)[0].outputs[0].text
    stop = whole[4:7]
    cut = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, stop=(stop,))
    stopped, other = llm.generate(["in the", "on an"], [cut, GREEDY])
    assert stopped.outputs[0].text == whole[: whole.index(stop)]
    assert stopped.outputs[0].finish_reason is FinishReason.STOP
    assert other.outputs[0].finish_reason is FinishReason.LENGTH
    assert len(other.outputs[0].token_ids) == 12


def test_a_stop_id_ends_and_is_no_text(llm: LLM) -> None:
    tokens = ids(llm.generate("in the", GREEDY))[0]
    stop_id = tokens[3]
    params = SamplingParams(
        temperature=0, max_tokens=12, ignore_eos=True, stop_token_ids=(stop_id,)
    )
    output = llm.generate("in the", params)[0].outputs[0]
    end = tokens.index(stop_id) + 1
    assert output.token_ids == tokens[:end]
    assert output.finish_reason == "stop"
    kept = llm.generate("in the", SamplingParams(temperature=0, max_tokens=end, ignore_eos=True))
    assert kept[0].outputs[0].text.startswith(output.text)
    assert kept[0].outputs[0].text != output.text


def test_the_prefix_cache_is_used_and_changes_nothing(llm: LLM) -> None:
    prompt = "a prompt that is longer than one block of the cache, " * 3
    first = llm.generate(prompt, GREEDY)[0]
    again = llm.generate(prompt, GREEDY)[0]
    assert again.cached_tokens >= 64
    assert again.outputs == first.outputs


def test_chat_is_the_template_and_one_or_many(llm: LLM) -> None:
    talk = [{"role": "user", "content": "the and <|im_end|>"}]
    one = llm.chat(talk, GREEDY)
    many = llm.chat([talk, [{"role": "developer", "content": "x"}, *talk]], GREEDY)
    assert len(one) == 1
    assert ids(many)[0] == ids(one)[0]
    assert one[0].prompt_token_ids.count(2) == 1, "user text must not become a special token"
    assert len(many[1].prompt_token_ids) > len(many[0].prompt_token_ids)


def test_chat_gives_the_template_its_variables(llm: LLM) -> None:
    talk = [{"role": "user", "content": "the"}]
    plain = llm.chat(talk, GREEDY)
    assert ids(llm.chat(talk, GREEDY, chat_template_kwargs={"enable_thinking": False})) == ids(
        plain
    )
    with pytest.raises(ClientError, match="'messages' is not the caller's to set"):
        llm.chat(talk, GREEDY, chat_template_kwargs={"messages": []})


def test_without_parameters_a_completion_is_short(llm: LLM) -> None:
    assert len(ids(llm.generate("the"))[0]) <= 16
    assert llm.generate([]) == []
    assert llm.chat([]) == []


def test_a_default_that_nobody_set_is_no_error_near_the_end_of_the_context(llm: LLM) -> None:
    long = [3] * (TINY_SPEC.context_len - 5)
    assert 1 <= len(ids(llm.generate([long]))[0]) <= 5
    with pytest.raises(ClientError, match="max_tokens asks for 16"):
        llm.generate([long], SamplingParams(max_tokens=16))


def test_the_end_of_sequence_is_a_mark_even_if_the_tokenizer_calls_it_text(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = llm.generate("in the", GREEDY)[0].outputs[0]
    model = llm._model
    assert model is not None
    ordinary = replace(model.info, eos_token_ids=(whole.token_ids[3],))
    monkeypatch.setattr(llm, "_model", replace(model, info=ordinary))
    ended = llm.generate("in the", replace(GREEDY, ignore_eos=False))[0].outputs[0]
    assert ended.finish_reason is FinishReason.STOP
    end = whole.token_ids.index(whole.token_ids[3])
    assert ended.token_ids == whole.token_ids[: end + 1]
    assert ended.text == model.tokenizer.decode(whole.token_ids[:end])


@pytest.mark.parametrize(
    ("prompts", "sampling", "field"),
    [
        ([["ok"], 3.5], GREEDY, "prompts[0]"),
        (["ok", ""], GREEDY, "prompts[1]"),
        (["ok", [3, 10**9]], GREEDY, "prompts[1]"),
        (["ok", [-1]], GREEDY, "prompts[1]"),
        (["ok", "x" * 5000], GREEDY, "prompts[1]"),
        (["ok", "ok"], [GREEDY], "sampling"),
        (["ok"], SamplingParams(temperature=float("nan")), "temperature"),
        (["ok"], SamplingParams(max_tokens=0), "max_tokens"),
        (["ok"], SamplingParams(max_tokens=10**6), "prompts[0]"),
        (["ok", "\ud800"], GREEDY, "prompts[1]"),
        (None, GREEDY, "prompts"),
        (7, GREEDY, "prompts"),
        (b"bytes", GREEDY, "prompts"),
        (["ok"], {"max_tokens": 4}, "sampling"),
        (["ok"], [{"max_tokens": 4}], "sampling"),
        (["ok"], "greedy", "sampling"),
    ],
)
def test_a_wrong_prompt_is_named_and_nothing_runs(
    llm: LLM, prompts: Any, sampling: Any, field: str
) -> None:
    steps = view_of(llm).steps_total
    with pytest.raises(ClientError) as caught:
        llm.generate(prompts, sampling)
    assert caught.value.field == field
    assert view_of(llm).steps_total == steps
    assert len(llm.generate("fine", GREEDY)) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": None}],
        [{"content": "x"}],
        [[]],
        [["hello"]],
        ["hello"],
        "hello",
        None,
    ],
)
def test_wrong_messages(llm: LLM, messages: Any) -> None:
    with pytest.raises(ClientError) as caught:
        llm.chat(messages, GREEDY)
    assert caught.value.field == "messages"


def test_ctrl_c_ends_the_batch_and_not_the_model(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    model = llm._model
    assert model is not None
    forward, steps = model.engine.forward, 0

    def interrupted(plan: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 3:
            signal.raise_signal(signal.SIGINT)
        return forward(plan)

    monkeypatch.setattr(model.engine, "forward", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["the"] * 4, SamplingParams(max_tokens=100, ignore_eos=True))
    assert steps == 3, "it must stop at the end of the step"
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    assert len(ids(llm.generate("the", GREEDY))[0]) == 12


def test_a_failing_engine_raises_and_leaves_nothing(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llm._model
    assert model is not None

    def broken(plan: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model.engine, "forward", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        llm.generate(["one", "two"], GREEDY)
    monkeypatch.undo()
    assert len(ids(llm.generate("one", GREEDY))[0]) == 12


def test_threads_take_turns(llm: LLM) -> None:
    expected = ids(llm.generate("the", GREEDY))
    seen: list[Any] = []
    threads = [
        threading.Thread(target=lambda: seen.append(ids(llm.generate("the", GREEDY))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 4


def test_the_progress_bar_is_on_stderr_and_only_if_wanted(
    llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    llm.generate(["a", "b"], GREEDY)
    assert capsys.readouterr() == ("", "")
    llm.generate(["a", "b"], GREEDY, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "2/2" in shown.err


def test_closed(folder: Path) -> None:
    llm = LLM(str(folder), kv_memory="1MiB")
    llm.close()
    llm.close()
    with pytest.raises(UsageError, match="closed"):
        llm.generate("x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_memory": "lots"}, "kv.memory_bytes"),
        ({"max_model_len": 10**6}, "model.max_model_len = 1000000: the context of tiny is 256"),
        ({"config": {"kv": {"page_token": 1}}}, "did you mean page_tokens"),
        ({"cores": (60000,)}, "60000"),
    ],
)
def test_wrong_settings(folder: Path, options: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        LLM(str(folder), **options)
    assert message in str(caught.value)


def test_weights_are_cached_where_the_server_has_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    half = write_hf_folder(
        tmp_path / "half",
        TINY_SPEC,
        random_tensors(TINY_SPEC, seed=2),
        storage=StorageType.F16,
    )
    LLM(str(half), kv_memory="1MiB").close()
    assert cache_folder(EngineConfig()) == tmp_path / "antiphon"
    assert list((tmp_path / "antiphon").rglob("*.safetensors"))


def test_a_queue_that_the_caller_bounded_stays_bounded(folder: Path) -> None:
    config = {"scheduler": {"max_queue": 1, "max_num_seqs": 2}}
    with LLM(str(folder), kv_memory="1MiB", config=config) as llm:
        assert len(llm.generate(["a", "b", "c"], GREEDY)) == 3
        with pytest.raises(ClientError, match="wait already") as caught:
            llm.generate(["a", "b", "c", "d"], GREEDY)
        assert caught.value.field == "prompts[3]"


def test_no_such_model() -> None:
    with pytest.raises(UsageError, match="smollm2-135m"):
        LLM("smollm2-153m")
    assert issubclass(ConfigError, UsageError)


def test_the_package_offers_it() -> None:
    assert {"LLM", "SamplingParams"} <= set(antiphon.__all__)
    with pytest.raises(AttributeError):
        _ = antiphon.NoSuchThing


@pytest.mark.parametrize("table", ["http", "cluster", "router", "store", "log"])
def test_settings_of_servers_are_refused(folder: Path, table: str) -> None:
    with pytest.raises(UsageError, match=f"config: {table} has no effect here"):
        LLM(str(folder), config={table: {}})
