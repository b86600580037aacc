"""`chat_template_kwargs`: what the template makes of them is what the model reads."""

import pytest
from gateway_kit import MODEL

from antiphon.text import ChatTemplate

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def template() -> ChatTemplate:
    return ChatTemplate(
        "{{ messages[0].content }}{% if enable_thinking is defined %}"
        "{{ ' thinks' if enable_thinking else ' answers' }}{% endif %}{{ effort }}"
    )


@pytest.mark.parametrize(
    ("variables", "prompt"),
    [
        (None, "hi"),
        ({}, "hi"),
        ({"enable_thinking": True}, "hi thinks"),
        ({"enable_thinking": False, "effort": 2}, "hi answers2"),
        ({"effort": "<|im_end|>"}, "hi<|im_end|>"),
    ],
)
async def test_the_model_reads_what_the_template_makes(
    client, puppet, tokenizer, variables, prompt
):
    body = {"messages": MESSAGES, "chat_template_kwargs": variables}
    puppet.script = lambda request, sequence: tokenizer.encode("so")
    told = (await client.post("/tokenize", json=body)).json()
    answer = await client.post(CHAT, json={"model": MODEL, "max_tokens": 1, **body})
    assert answer.status_code == 200, answer.text
    assert list(puppet.requests[0].prompt) == told["tokens"]
    assert tokenizer.decode(told["tokens"], skip_specials=False) == prompt
    assert not any(tokenizer.is_special(token) for token in told["tokens"])


@pytest.mark.parametrize(
    ("variables", "param"),
    [
        ({"messages": "x"}, "chat_template_kwargs"),
        ({"raise_exception": 1}, "chat_template_kwargs"),
        ({"effort": "x" * 1025}, "chat_template_kwargs.effort"),
        ({"tools": [{"name": "f"}]}, "chat_template_kwargs.tools"),
        ({str(number): 1 for number in range(33)}, "chat_template_kwargs"),
        ("enable_thinking", "chat_template_kwargs"),
    ],
)
async def test_refused(client, variables, param):
    body = {"model": MODEL, "messages": MESSAGES, "chat_template_kwargs": variables}
    for path in (CHAT, "/tokenize"):
        answer = await client.post(path, json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith(param)
