"""The event loop goes on while the real tokenizer works on long text."""

import asyncio
import threading

import pytest
from gateway_kit import MODEL

from antiphon.errors import ClientError
from antiphon.live.gateway import Prompts
from antiphon.live.gateway.chat_schema import Message

MEBIBYTE_OF_TEXT = "It was the best of times, it was the worst of times < " * 20_000


@pytest.fixture
def prompts(tokenizer, template) -> Prompts:
    return Prompts(tokenizer, template)


async def turns_of_the_loop(work: asyncio.Task) -> int:
    turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    return turns


@pytest.mark.parametrize("poison", ["", "<|im_end|>"], ids=["plain", "spells-a-special-token"])
@pytest.mark.parametrize("kind", ["text", "chat"])
async def test_the_loop_goes_on_while_a_mebibyte_is_tokenized(prompts, kind, poison):
    """A tokenizer that keeps the interpreter lock gives the loop one or two turns in all."""
    text = MEBIBYTE_OF_TEXT + poison
    if kind == "text":
        work = asyncio.create_task(prompts.texts([text]))
    else:
        work = asyncio.create_task(
            prompts.chat([Message.model_validate({"role": "user", "content": text})])
        )
    assert await turns_of_the_loop(work) > 20
    await work


async def test_a_small_prompt_does_not_wait_for_big_ones(prompts, tokenizer, monkeypatch):
    begun, go_on = threading.Semaphore(0), threading.Event()
    encode = tokenizer.encode

    def held(text, **options):
        if len(text) > 100:
            begun.release()
            assert go_on.wait(30)
        return encode(text, **options)

    monkeypatch.setattr(tokenizer, "encode", held)
    big = [asyncio.create_task(prompts.texts([MEBIBYTE_OF_TEXT])) for _ in range(2)]
    try:
        for _ in big:
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        assert await prompts.texts(["small"]) == [encode("small")]
        assert not any(task.done() for task in big)
    finally:
        go_on.set()
        await asyncio.gather(*big)


async def test_short_text_needs_no_thread_and_long_text_has_one(prompts, tokenizer, monkeypatch):
    threads: list[threading.Thread] = []
    encode = tokenizer.encode

    def noting(*arguments, **options):
        threads.append(threading.current_thread())
        return encode(*arguments, **options)

    monkeypatch.setattr(tokenizer, "encode", noting)
    assert await prompts.texts(["ab", "c"]) == [encode("ab"), encode("c")]
    assert set(threads) == {threading.current_thread()}
    threads.clear()
    long = ["word " * 20] * 200
    assert await prompts.texts(long) == [encode(long[0])] * 200
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("kind", ["text", "chat"])
async def test_what_can_not_fit_is_refused_without_tokenizing_it(
    prompts, tokenizer, monkeypatch, kind
):
    monkeypatch.setattr(tokenizer, "encode", None)
    with pytest.raises(ClientError, match=r"at least .* context of 1000") as refused:
        if kind == "text":
            await prompts.texts(["short", MEBIBYTE_OF_TEXT], max_model_len=1000)
        else:
            message = Message.model_validate({"role": "user", "content": MEBIBYTE_OF_TEXT})
            await prompts.chat([message], max_model_len=1000)
    assert refused.value.code == "context_length_exceeded"
    assert refused.value.field == ("prompt" if kind == "text" else "messages")


@pytest.mark.parametrize("ids", [[5] * 8192, [[5], [5] * 8192]], ids=["one", "many"])
async def test_too_many_ids_are_refused_by_their_name(client, puppet, ids):
    response = await client.post(
        "/v1/completions", json={"model": MODEL, "prompt": ids, "echo": True}
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (
        "context_length_exceeded",
        "prompt[1]" if isinstance(ids[0], list) else "prompt",
    )
    assert puppet.requests == []
