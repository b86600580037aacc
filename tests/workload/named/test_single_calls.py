from itertools import islice
from statistics import fmean

import pytest

from antiphon.workload import Api, Session, parse_workload


def some(text: str, count: int = 2000, seed: int = 1) -> list[Session]:
    return list(islice(parse_workload(text).sessions(seed), count))


def lengths(sessions: list[Session]) -> tuple[list[int], list[int]]:
    asks = [session.turns[0].ask for session in sessions]
    return [len(ask.text.split()) for ask in asks], [ask.max_tokens for ask in asks]


def test_fixed_has_the_lengths_that_were_asked_for() -> None:
    inputs, outputs = lengths(some("fixed:input=300,output=7", 20))
    assert set(inputs) == {300}
    assert set(outputs) == {7}


@pytest.mark.parametrize(
    ("name", "mean_input", "mean_output", "api"),
    [
        ("chat", 756, 200, Api.CHAT),
        ("code", 171, 98, Api.COMPLETION),
        ("summarise", 1738, 91, Api.CHAT),
    ],
)
def test_the_means_are_those_of_the_data_sets(
    name: str, mean_input: int, mean_output: int, api: Api
) -> None:
    sessions = some(name)
    inputs, outputs = lengths(sessions)
    assert fmean(inputs) == pytest.approx(mean_input, rel=0.05)
    assert fmean(outputs) == pytest.approx(mean_output, rel=0.05)
    assert {session.turns[0].ask.api for session in sessions} == {api}
    assert {session.slo_class for session in sessions} == {name}


def test_a_scale_multiplies_both_lengths() -> None:
    whole, small = lengths(some("chat", 50)), lengths(some("chat:scale=0.25", 50))
    for side in (0, 1):
        assert [max(1, round(one / 4)) for one in whole[side]] == small[side]


def test_what_does_not_fit_is_cut_and_the_rest_is_as_before() -> None:
    whole, cut = (lengths(some(f"chat:max_context={most}", 500)) for most in (8192, 1024))
    assert max(cut[0]) < max(whole[0])
    assert sum(a == b for a, b in zip(whole[0], cut[0], strict=True)) > 300
    assert all(b <= a for a, b in zip(whole[1], cut[1], strict=True))


def test_a_system_prompt_is_shared_by_all() -> None:
    sessions = some("chat:system=30", 10)
    (first, *others) = [session.turns[0].history for session in sessions]
    assert first[0].role == "system"
    assert len(str(first[0].parts[0]).split()) == 30
    assert all(one == first for one in others)
    assert not some("code:system=30", 1)[0].turns[0].history, "completions have no messages"
