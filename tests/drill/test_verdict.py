from dataclasses import replace

import pytest

from antiphon.bench import Answer, Choice, ScoredToken
from antiphon.drill.verdict import Flaw, judge

GOOD = Answer(
    number=3,
    due_at=0.0,
    sent_at=0.0,
    ended_at=1.0,
    status=200,
    choices=(Choice("one two three", "stop"), Choice("four", "length")),
    prompt_tokens=5,
    completion_tokens=9,
)


def test_the_same_answer_is_found_good_whenever_it_came() -> None:
    assert judge([replace(GOOD, ended_at=9.0, token_at=(1.0, 2.0))], {3: GOOD}) == ()


@pytest.mark.parametrize(
    ("change", "flaw", "says"),
    [
        ({"error": "HTTP 500"}, Flaw.FAILED, "HTTP 500"),
        ({"status": 503}, Flaw.FAILED, "503"),
        ({"choices": (Choice("one two three", None), GOOD.choices[1])}, Flaw.FAILED, "None"),
        ({"choices": ()}, Flaw.FAILED, "ends"),
        (
            {"choices": (Choice("one two two three", "stop"), GOOD.choices[1])},
            Flaw.WRONG,
            "choice 0 differs at character 9",
        ),
        (
            {"choices": (Choice("one two", "stop"), GOOD.choices[1])},
            Flaw.WRONG,
            "at character 7: '' instead of ' three'",
        ),
        (
            {"choices": (Choice("one two three", "length"), GOOD.choices[1])},
            Flaw.WRONG,
            "instead of ['stop', 'length']",
        ),
        ({"completion_tokens": 10}, Flaw.WRONG, "(5, 10)"),
        ({"prompt_tokens": 6}, Flaw.WRONG, "(6, 9)"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], flaw: Flaw, says: str) -> None:
    (finding,) = judge([replace(GOOD, **change)], {3: GOOD})
    assert finding.number == 3
    assert finding.flaw is flaw
    assert says in finding.message


SCORED = (ScoredToken("four", -0.5, (("four", -0.5), ("for", -1.5))), ScoredToken("!", -0.25))


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (SCORED[:1], "choice 1: 1 tokens with log-probabilities instead of 2"),
        ((*SCORED, SCORED[1]), "choice 1: 3 tokens"),
        ((SCORED[0], replace(SCORED[1], logprob=-0.25000001)), "choice 1: token 1 is"),
        ((replace(SCORED[0], top=()), SCORED[1]), "choice 1: token 0 is"),
        ((replace(SCORED[0], text="for"), SCORED[1]), "choice 1: token 0 is"),
    ],
)
def test_log_probabilities_are_compared_token_by_token(
    got: tuple[ScoredToken, ...], says: str
) -> None:
    def with_scores(scored: tuple[ScoredToken, ...]) -> Answer:
        return replace(GOOD, choices=(GOOD.choices[0], replace(GOOD.choices[1], scored=scored)))

    assert judge([with_scores(SCORED)], {3: with_scores(SCORED)}) == ()
    (finding,) = judge([with_scores(got)], {3: with_scores(SCORED)})
    assert finding.flaw is Flaw.WRONG
    assert finding.message.startswith(says)
