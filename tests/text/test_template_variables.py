"""What a template asks for beside the messages: as transformers gives it, and closed to users."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.checkpoint import open_checkpoint
from antiphon.errors import ClientError
from antiphon.testing.tiny_models import TINY_SPEC, random_tensors, write_hf_folder
from antiphon.text import ChatTemplate, Tokenizer

TEMPLATE = """{{ bos_token }}
{%- if tools %}
    {{- '<|im_start|>system\n# Tools' }}
    {%- for tool in tools %}
        {{- '\n' ~ (tool | tojson) }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endif %}
{%- for document in documents or [] %}
    {{- '[' ~ document.title | trim ~ '] ' ~ document.text ~ eos_token }}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
    {%- if effort is defined and effort == 'high' %}{{ 'Reasoning: ' ~ effort }}{%- endif %}
{%- endif %}"""

MESSAGES = [{"role": "user", "content": "the rain <|im_end|> in Spain"}]
SAFE = [{"role": "user", "content": "the rain in Spain"}]
SPELLINGS = st.sampled_from(("<|im_end|>", "<|im_", "end|>", "<|im_start|>system", "a", " ", "é"))
TEXT = st.lists(SPELLINGS, max_size=4).map("".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "tiny"
    return write_hf_folder(folder, TINY_SPEC, random_tensors(TINY_SPEC, seed=1))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(open_checkpoint(folder).tokenizer)


@pytest.fixture(scope="module")
def template(tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(TEMPLATE, tokenizer.bos_token, tokenizer.eos_token)


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
JSON_TEXT = st.text("aé \n\"'<", max_size=8)
VARIABLES = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.none() | st.lists(st.just(TOOL), max_size=2),
        "documents": st.none()
        | st.lists(st.fixed_dictionaries({"title": JSON_TEXT, "text": JSON_TEXT}), max_size=2),
        "enable_thinking": st.booleans(),
        "effort": st.sampled_from(["low", "high"]),
    },
)


@given(variables=VARIABLES, add=st.booleans())
@settings(max_examples=150, deadline=None)
def test_same_ids_as_transformers(
    tokenizer: Tokenizer, template: ChatTemplate, oracle: Any, variables: dict[str, Any], add: bool
) -> None:
    expected = oracle.apply_chat_template(
        SAFE,
        chat_template=TEMPLATE,
        add_generation_prompt=add,
        tokenize=True,
        return_dict=False,
        **variables,
    )
    found = template.encode(tokenizer, SAFE, add_generation_prompt=add, variables=variables)
    assert found == tuple(expected)


@given(title=TEXT, text=TEXT, effort=TEXT)
@settings(max_examples=150, deadline=None)
def test_no_variable_becomes_a_special_token(
    tokenizer: Tokenizer, template: ChatTemplate, title: str, text: str, effort: str
) -> None:
    """The template's own are: the first, one a document, two of the message, one of the answer."""
    documents = [{"title": title, "text": text}]
    variables = {"documents": documents, "effort": effort, "tools": [{"name": text}]}
    ids = template.encode(tokenizer, MESSAGES, variables=variables)
    assert [i for i in ids if tokenizer.is_special(i)] == [1, 1, 2, 2, 1, 2, 1]
    shown = tokenizer.decode(ids, skip_specials=False)
    assert f"[{title.strip()}] {text}<|im_end|>" in shown


@pytest.mark.parametrize(
    "name", ["messages", "add_generation_prompt", "bos_token", "raise_exception", "strftime_now"]
)
def test_what_is_not_the_callers_is_refused(
    tokenizer: Tokenizer, template: ChatTemplate, name: str
) -> None:
    with pytest.raises(ClientError, match=f"'{name}' is not the caller's to set") as caught:
        template.encode(tokenizer, SAFE, variables={name: "x"})
    assert caught.value.field == "chat_template_kwargs"


def test_names_that_python_methods_use(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    plain = template.encode(tokenizer, SAFE)
    assert template.encode(tokenizer, SAFE, variables={"self": 1, "args": [2], "loop": 3}) == plain


def test_the_clock(tokenizer: Tokenizer) -> None:
    template = ChatTemplate(
        "{{ strftime_now('%d %B %Y') }}", now=lambda: datetime.datetime(2024, 7, 26)
    )
    assert tokenizer.decode(template.encode(tokenizer, SAFE)) == "26 July 2024"
