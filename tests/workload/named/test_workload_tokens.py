"""Words stand for tokens: what that is worth with a real tokenizer and chat template."""

from itertools import islice

import pytest

from antiphon.checkpoint import open_checkpoint, resolve
from antiphon.text import ChatTemplate, Tokenizer
from antiphon.workload import AnswerOf, Api, Session, Turn, parse_workload
from antiphon.workload.context import quoted
from antiphon.workload.prompt_text import text

NAMES = ("fixed", "chat", "code", "summarise", "multi-turn", "rag", "completion", "agents")


@pytest.fixture(scope="module")
def smollm() -> tuple[Tokenizer, ChatTemplate]:
    source = open_checkpoint(resolve("smollm2-135m")).tokenizer
    tokenizer = Tokenizer.load(source)
    return tokenizer, ChatTemplate(source.chat_template, tokenizer.bos_token, tokenizer.eos_token)


def prompt_tokens(model: tuple[Tokenizer, ChatTemplate], session: Session, turn: Turn) -> int:
    """With answers as long as quoted ones are taken to be."""
    tokenizer, template = model
    if turn.ask.api is Api.COMPLETION:
        return len(tokenizer.encode(turn.ask.text))
    messages = [
        {
            "role": message.role,
            "content": "".join(
                text(quoted(session.turns[part.turn].ask.max_tokens), 1, "answer", part.turn)
                if isinstance(part, AnswerOf)
                else part
                for part in message.parts
            ),
        }
        for message in turn.history
    ]
    messages.append({"role": "user", "content": turn.ask.text})
    return len(template.encode(tokenizer, messages))


@pytest.mark.parametrize("name", NAMES)
def test_every_call_fits_the_context_in_tokens(
    name: str, smollm: tuple[Tokenizer, ChatTemplate]
) -> None:
    workload = parse_workload(f"{name}:max_context=2048")
    for session in islice(workload.sessions(1), 30):
        for turn in session.turns:
            assert prompt_tokens(smollm, session, turn) + turn.ask.max_tokens <= 2048


def test_a_prompt_has_the_tokens_that_were_asked_for(
    smollm: tuple[Tokenizer, ChatTemplate],
) -> None:
    """Beside what the template adds, the same for all."""
    counts = {
        words: prompt_tokens(smollm, session, session.turns[0]) - words
        for words in (1, 10, 100, 1000)
        for session in islice(parse_workload(f"fixed:input={words}").sessions(words), 1)
    }
    assert max(counts.values()) - min(counts.values()) <= 2
