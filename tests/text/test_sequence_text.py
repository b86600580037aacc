"""What marks an end is no text, and a sequence goes on from its prompt."""

from test_sentencepiece import SOURCE

from antiphon.text import SequenceText, Tokenizer
from antiphon.types import Request, RequestId, SamplingParams, TokenGenerated, TokenId


def text_of(tokenizer: Tokenizer, tokens: tuple[TokenId, ...], **facts) -> str:
    eos = facts.pop("eos_token_ids", ())
    request = Request(
        id=RequestId("r"),
        prompt=(1,),
        sampling=SamplingParams(max_tokens=99, seed=0, **facts),
        eos_token_ids=eos,
    )
    text = SequenceText(request, tokenizer)
    pieces = []
    for index, token in enumerate(tokens):
        fact = TokenGenerated(request=request.id, attempt=1, sequence=0, index=index, token=token)
        pieces.append(text.push(fact)[0].text)
    return "".join((*pieces, text.finish().text))


def test_end_of_sequence_and_stop_ids_are_marks(smollm: Tokenizer) -> None:
    hi, end = smollm.encode("Hi"), smollm.encode(" END")[:1]
    assert text_of(smollm, hi + end) == "Hi" + smollm.decode(end)
    assert text_of(smollm, hi + end, eos_token_ids=end) == "Hi"
    assert text_of(smollm, hi + end, stop_token_ids=end) == "Hi"


def test_before_min_tokens_they_are_ordinary_text(smollm: Tokenizer) -> None:
    hi, end = smollm.encode("Hi"), smollm.encode(" END")[:1]
    spelled = "Hi" + smollm.decode(end)
    length = len(hi + end)
    assert text_of(smollm, hi + end, eos_token_ids=end, min_tokens=length + 1) == spelled
    assert text_of(smollm, hi + end + end, eos_token_ids=end, min_tokens=length + 1) == spelled
    assert text_of(smollm, hi + end, eos_token_ids=end, min_tokens=length) == "Hi"


def test_a_sentencepiece_completion_keeps_the_space_after_its_prompt() -> None:
    tokenizer = Tokenizer.load(SOURCE)
    assert text_of(tokenizer, tokenizer.encode("hello world")) == " hello world"
