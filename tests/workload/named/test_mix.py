import math
from collections import Counter
from itertools import islice

import pytest

from antiphon.errors import UsageError
from antiphon.workload import JsonLines, Mix, parse_workload


def test_shares_are_relative_and_classes_are_kept() -> None:
    mix = parse_workload("mix:chat=3,summarise=1")
    seen = Counter(session.slo_class for session in islice(mix.sessions(1), 2000))
    assert seen["chat"] / 2000 == pytest.approx(0.75, abs=0.03)
    assert seen["chat"] + seen["summarise"] == 2000


def test_parts_of_the_same_kind_say_different_things() -> None:
    part = parse_workload("fixed:input=20")
    texts = [one.turns[0].ask.text for one in islice(Mix(((part, 1), (part, 1))).sessions(1), 200)]
    assert len(set(texts)) == 200


def test_all_parts_get_the_context() -> None:
    for part, _ in parse_workload("mix:chat=1,rag=2,max_context=2048").parts:  # type: ignore[attr-defined]
        assert part.max_context == 2048


def test_it_ends_when_a_part_does(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "Why?"}\n' * 3)
    mix = Mix(((JsonLines(file=file), 1), (parse_workload("fixed:input=5"), 1)))
    classes = [session.slo_class for session in mix.sessions(1)]
    assert classes.count("jsonl") == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mix", "mix: names no workload: give mix:chat=0.7,summarise=0.3"),
        ("mix:max_context=2048", "mix: names no workload"),
        ("mix:chat", '"chat" must be an option such as key=value'),
        ("mix:chat=0", "every share must be above 0"),
        ("mix:chat=-1", "every share must be above 0"),
        ("mix:chat=nan", 'mix: chat must be a share such as 0.7, not "nan"'),
        ("mix:chat=inf", "mix: chat must be a share such as 0.7"),
        ("mix:chat=half", 'mix: chat must be a share such as 0.7, not "half"'),
        ("mix:chat=1,chat=2", "mix: chat is given twice: keep one"),
        ("mix:trace=1", 'mix: there is no option "trace": its options are fixed, chat'),
        ("mix:mix=1", 'mix: there is no option "mix"'),
        ("mix:chat=1,max_context=x", "chat: max_context must be a whole number"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_workload(text)
    assert problem in str(raised.value)


def test_a_mix_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="mix: must have from 1 to 32 parts"):
        Mix(())
    for share in (math.nan, math.inf, 0.0):
        with pytest.raises(UsageError, match="mix: every share must be above 0"):
            Mix(((parse_workload("fixed"), share),))
