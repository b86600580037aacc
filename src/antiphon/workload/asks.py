"""What requests ask: chats of made-up text, each a function of (seed, number)."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.core.draws import Draws

_TEXT = (
    "the a of to and in is it you that he was for on are with as his they be at one have this from "
    "or had by hot but some what there we can out other were all your when up use word how said an "
    "each she which do their time if will way about many then them would write like so these her "
    "long make thing see him two has look more day could go come did my sound no most number who "
    "over know water than call first people may down side been now find any new work part take get "
    "place made live where after back little only round man year came show every good me give our"
)
WORDS = tuple(_TEXT.split())
"""Each is one token in common vocabularies, with the space before it."""
_STOPS = 4
"""Words at which an ask with stop strings ends; the API takes no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMix:
    """Ranges (both ends included) and shares that asks are drawn from."""

    prompt_words: tuple[int, int] = (10, 120)
    max_tokens: tuple[int, int] = (8, 48)
    sampled_share: float = 0.5
    """Asks with temperature and a seed; the others are greedy."""
    pair_share: float = 0.1
    """Asks for two choices."""
    plain_share: float = 0.1
    """Asks whose answer is not streamed."""
    penalty_share: float = 0.25
    """Asks with all three penalties: the next token depends on all tokens before it."""
    min_tokens_share: float = 0.25
    """Asks that must not end within the first half of `max_tokens`."""
    stop_share: float = 0.25
    """Asks that end at one of four common words: its beginning may be held back for long."""
    logprobs_share: float = 0.25
    """Asks for log-probabilities, with two alternatives a token."""
    shared_words: int = 0
    """Words that all prompts begin with: a system prompt."""


class Api(StrEnum):
    """The route of the OpenAI API that an ask is sent to."""

    CHAT = "chat"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One chat. With a seed, and without chance when `temperature` is 0: its answer is fixed."""

    number: int
    text: str
    max_tokens: int
    temperature: float
    seed: int
    n: int = 1
    stream: bool = True
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None
    """Alternatives a token; None: no log-probabilities at all."""
    ignore_eos: bool = False
    """Go on to `max_tokens` whatever the model would like: an answer of known length."""
    api: Api = Api.CHAT
    model: str | None = None
    """None: the one that the client asks for all others."""


def ask(mix: AskMix, seed: int, number: int) -> Ask:
    """The ask of that number. The same arguments give the same ask on every machine."""

    draws = Draws(seed)

    def between(ends: tuple[int, int], purpose: str) -> int:
        return ends[0] + draws.below(ends[1] - ends[0] + 1, "ask", number, purpose)

    def happens(share: float, purpose: str) -> bool:
        return draws.fraction("ask", number, purpose) < share

    words = [draws.choice(WORDS, "shared word", place) for place in range(mix.shared_words)]
    for place in range(between(mix.prompt_words, "words")):
        words.append(draws.choice(WORDS, "word", number, place))
    max_tokens = between(mix.max_tokens, "max_tokens")
    penalized = happens(mix.penalty_share, "penalties")
    stops = [draws.choice(WORDS, "ask", number, "stop word", place) for place in range(_STOPS)]
    return Ask(
        number=number,
        text=f"Tell me more: {' '.join(words)}",
        max_tokens=max_tokens,
        temperature=0.8 if happens(mix.sampled_share, "temperature") else 0.0,
        seed=draws.below(2**31, "ask", number, "seed"),
        n=2 if happens(mix.pair_share, "n") else 1,
        stream=not happens(mix.plain_share, "stream"),
        frequency_penalty=0.4 if penalized else 0.0,
        presence_penalty=0.3 if penalized else 0.0,
        repetition_penalty=1.1 if penalized else 1.0,
        min_tokens=max_tokens // 2 if happens(mix.min_tokens_share, "min_tokens") else 0,
        stop=tuple(f" {word} " for word in stops) if happens(mix.stop_share, "stop") else (),
        top_logprobs=2 if happens(mix.logprobs_share, "logprobs") else None,
    )
