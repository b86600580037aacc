"""Text completions: prompts in four forms, choices in the API's order, echo, log-probabilities."""

import asyncio

import openai
import pytest
from gateway_kit import MODEL, events_of

from antiphon.live.gateway.completion_schema import CompletionBody
from antiphon.types import FinishReason, Logprobs

TEXT = "/v1/completions"


def text(**fields) -> dict:
    return {"model": MODEL, "prompt": "hi", **fields}


def texts_of(response, stream: bool) -> dict[int, str]:
    assert response.status_code == 200, response.text
    texts: dict[int, str] = {}
    for body in events_of(response.text) if stream else [response.json()]:
        assert body["object"] == "text_completion"
        for choice in body["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return dict(sorted(texts.items()))


@pytest.fixture
def parrot(puppet, tokenizer):
    """Answers with its prompt, its sequence and an exclamation mark."""

    def script(request, sequence):
        return tokenizer.encode(f"{tokenizer.decode(request.prompt)}{sequence}!")

    puppet.script = script


@pytest.mark.usefixtures("parrot")
async def test_an_answer_in_full(client):
    body = (await client.post(TEXT, json=text(prompt="abc"))).json()
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    usage = body.pop("usage")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert body == {
        "object": "text_completion",
        "model": MODEL,
        "system_fingerprint": "script-v1",
        "choices": [{"index": 0, "text": "abc0!", "logprobs": None, "finish_reason": "stop"}],
    }


@pytest.mark.usefixtures("parrot")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_ids", [False, True])
async def test_prompts_times_n_are_indexed_prompt_first(client, tokenizer, stream, as_ids):
    prompts = ["alpha", "beta", "gamma"]
    sent = [list(tokenizer.encode(p)) for p in prompts] if as_ids else prompts
    response = await client.post(TEXT, json=text(prompt=sent, n=2, stream=stream))
    expected = {i * 2 + j: f"{p}{j}!" for i, p in enumerate(prompts) for j in range(2)}
    assert texts_of(response, stream) == expected


@pytest.mark.usefixtures("parrot")
async def test_one_prompt_of_token_ids(client, tokenizer):
    ids = list(tokenizer.encode("some words"))
    response = await client.post(TEXT, json=text(prompt=ids))
    assert texts_of(response, False) == {0: "some words0!"}


@pytest.mark.usefixtures("parrot")
@pytest.mark.parametrize("stream", [False, True])
async def test_echo(client, tokenizer, stream):
    prompt = "Unicode 👩‍👩‍👧 prompt "
    for sent in (prompt, list(tokenizer.encode(prompt))):
        response = await client.post(
            TEXT, json=text(prompt=sent, echo=True, n=2, max_tokens=99, stream=stream)
        )
        assert texts_of(response, stream) == {0: f"{prompt}{prompt}0!", 1: f"{prompt}{prompt}1!"}


@pytest.mark.usefixtures("parrot")
async def test_usage_sums_over_prompts_and_counts_each_prompt_once(client, puppet, tokenizer):
    response = await client.post(TEXT, json=text(prompt=["one", "two two"], n=2))
    usage = response.json()["usage"]
    assert usage["prompt_tokens"] == sum(len(request.prompt) for request in puppet.requests)
    spoken = [f"{p}{j}!" for p in ("one", "two two") for j in range(2)]
    assert usage["completion_tokens"] == sum(len(tokenizer.encode(s)) for s in spoken)


@pytest.mark.parametrize(
    "prompt_len, fields, limit",
    [
        (8191, {}, 1),
        (8180, {}, 12),
        (8100, {}, 16),
        (8100, {"max_tokens": None}, 16),
        (8100, {"min_tokens": 50}, 50),
    ],
)
async def test_the_default_limit_never_refuses_a_call(client, puppet, prompt_len, fields, limit):
    puppet.script = lambda request, sequence: [5] * (limit + 1)
    body = {"model": MODEL, "prompt": [5] * prompt_len, **fields}
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    assert puppet.requests[0].sampling.max_tokens == limit


async def test_the_default_limit_is_sixteen_tokens(client, puppet, tokenizer):
    puppet.script = lambda request, sequence: tokenizer.encode(
        "a b c d e f g h i j k l m n o p q r"
    )
    body = (await client.post(TEXT, json=text())).json()
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities(client, puppet, tokenizer, stream):
    tokens = tokenizer.encode("One two, three")
    other = tokenizer.encode(" x")[0]
    scores = [Logprobs(-0.5, ((other, -0.25), (token, -0.5))) for token in tokens]

    async def answer():
        request = await puppet.request()
        puppet.start(request)
        puppet.tokens(request, tokens, logprobs=scores)
        puppet.end(request, FinishReason.STOP)

    response, _ = await asyncio.gather(
        client.post(TEXT, json=text(logprobs=2, stream=stream)), answer()
    )
    whole = events_of(response.text) if stream else [response.json()]
    parts = [c["logprobs"] for body in whole for c in body["choices"] if c["logprobs"]]
    spelled = [word for part in parts for word in part["tokens"]]
    offsets = [offset for part in parts for offset in part["text_offset"]]
    assert "".join(spelled) == "One two, three"
    assert offsets == ["One two, three".index(word) for word in spelled]
    assert [lp for part in parts for lp in part["token_logprobs"]] == [-0.5] * len(tokens)
    for part in parts:
        for word, top in zip(part["tokens"], part["top_logprobs"], strict=True):
            assert top == {" x": -0.25, word: -0.5}


async def test_one_refused_prompt_refuses_the_call_and_stops_the_others(client, puppet):
    """The second prompt is refused by the worker: the first must not run on unheard."""

    async def worker():
        first = await puppet.request(0)
        await puppet.until(lambda: (first.id, None) in puppet.aborts)

    puppet.refuse_from = 1
    response, _ = await asyncio.gather(
        client.post(TEXT, json=text(prompt=["a", "b", "c"])), worker()
    )
    assert response.status_code == 429


@pytest.mark.usefixtures("parrot")
async def test_the_official_client(url):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
        whole = await ai.completions.create(model=MODEL, prompt=["a", "b"], echo=True, n=2)
        assert [c.text for c in whole.choices] == ["aa0!", "aa1!", "bb0!", "bb1!"]
        parts = await ai.completions.create(model=MODEL, prompt="a", stream=True)
        assert "".join([part.choices[0].text async for part in parts]) == "a0!"


@pytest.mark.usefixtures("parrot")
@pytest.mark.parametrize(
    "prompt", ["plain words", "<|im_start|>x<|im_end|>", "👩‍👩‍👧 \U0001f600 é"]
)
async def test_tokenize_and_detokenize_are_inverse_and_agree_with_completions(
    client, puppet, tokenizer, prompt
):
    told = (await client.post("/tokenize", json={"prompt": prompt, "model": MODEL})).json()
    assert told["count"] == len(told["tokens"])
    assert told["max_model_len"] == 8192
    assert told["token_strs"] is None
    assert not any(tokenizer.is_special(token) for token in told["tokens"])
    back = await client.post("/detokenize", json={"tokens": told["tokens"]})
    assert back.json() == {"prompt": prompt}
    await client.post(TEXT, json=text(prompt=prompt))
    assert list(puppet.requests[0].prompt) == told["tokens"]


@pytest.mark.usefixtures("parrot")
async def test_tokenize_of_messages_agrees_with_chat(client, puppet):
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    told = (await client.post("/tokenize", json={"messages": messages})).json()
    await client.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
    assert list(puppet.requests[0].prompt) == told["tokens"]
    body = {"messages": messages, "add_generation_prompt": False, "return_token_strs": True}
    shorter = (await client.post("/tokenize", json=body)).json()
    assert told["tokens"][: shorter["count"]] == shorter["tokens"]
    assert shorter["count"] < told["count"] == len(told["tokens"])
    assert len(shorter["token_strs"]) == shorter["count"]


@pytest.mark.usefixtures("parrot")
async def test_a_long_prompt_takes_the_same_way(client, puppet, tokenizer):
    """Long text is tokenized in a thread; the ids are the same."""
    prompt = "word " * 5000
    response = await client.post(TEXT, json=text(prompt=prompt, max_tokens=1))
    assert response.status_code == 200
    assert puppet.requests[0].prompt == tokenizer.encode(prompt)


class Unread(str):
    """Text that is as long as it may be: nobody may look at its characters one by one."""

    __slots__ = ()

    def __iter__(self):
        raise AssertionError("the event loop can't wait for this")


def test_the_characters_of_a_prompt_are_not_looked_at_one_by_one():
    body = CompletionBody.model_construct(model=MODEL, prompt=Unread("text"))
    assert (body.texts(), body.ids()) == (["text"], {})
