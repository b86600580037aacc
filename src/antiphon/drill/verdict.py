"""What a drill has to show, from what the users got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from antiphon.bench import Answer, ScoredToken


class Flaw(StrEnum):
    """What was wrong with an answer."""

    FAILED = "failed"
    """Refused, broken off, or ended by an error."""
    WRONG = "wrong"
    """Another text, end, number of tokens or log-probability than without faults: a token was
    changed, repeated or lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer that is not what it should be, and how."""

    number: int
    flaw: Flaw
    message: str


def judge(answers: Sequence[Answer], reference: Mapping[int, Answer]) -> tuple[Finding, ...]:
    """Compare each answer with the undisturbed one of the same number. In the order of `answers`.

    `reference` must have every number, and good answers only.
    """
    findings = (_judge(answer, reference[answer.number]) for answer in answers)
    return tuple(finding for finding in findings if finding is not None)


def _judge(answer: Answer, expected: Answer) -> Finding | None:
    if not answer.ok:
        problem = answer.error or f"HTTP {answer.status}, ends {_ends(answer)}"
        return Finding(answer.number, Flaw.FAILED, problem)
    for index, (got, wanted) in enumerate(zip(answer.choices, expected.choices, strict=True)):
        if got.text != wanted.text:
            where = _first_difference(got.text, wanted.text)
            message = (
                f"choice {index} differs at character {where}: "
                f"{got.text[where : where + 40]!r} instead of {wanted.text[where : where + 40]!r}"
            )
            return Finding(answer.number, Flaw.WRONG, message)
        if got.scored != wanted.scored:
            message = f"choice {index}: {_scores_differ(got.scored, wanted.scored)}"
            return Finding(answer.number, Flaw.WRONG, message)
    if _ends(answer) != _ends(expected):
        message = f"ends {_ends(answer)} instead of {_ends(expected)}"
        return Finding(answer.number, Flaw.WRONG, message)
    got_usage = (answer.prompt_tokens, answer.completion_tokens)
    wanted_usage = (expected.prompt_tokens, expected.completion_tokens)
    if got_usage != wanted_usage:
        message = f"{got_usage} tokens of prompt and output instead of {wanted_usage}"
        return Finding(answer.number, Flaw.WRONG, message)
    return None


def _ends(answer: Answer) -> list[str | None]:
    return [choice.finish_reason for choice in answer.choices]


def _scores_differ(got: Sequence[ScoredToken], wanted: Sequence[ScoredToken]) -> str:
    """How two unequal lists differ first."""
    place = _first_difference(got, wanted)
    if place >= min(len(got), len(wanted)):
        return f"{len(got)} tokens with log-probabilities instead of {len(wanted)}"
    return f"token {place} is {got[place]} instead of {wanted[place]}"


def _first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
