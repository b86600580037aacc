"""Latency targets as text: what is meant, and what is refused."""

from math import inf

import pytest

from antiphon.errors import UsageError
from antiphon.runs.slo_text import PRESETS, default_slos, slos_of, with_defaults
from antiphon.types import Slo


def test_without_any_each_class_has_those_of_its_name_and_others_those_of_chats() -> None:
    assert slos_of([], []) == ()
    assert default_slos(["agents", "chat"]) == (("", PRESETS["chat"]),)
    assert default_slos(["code", "rag"]) == (("", PRESETS["chat"]), ("code", PRESETS["code"]))


def test_targets_of_one_class_leave_the_others_theirs() -> None:
    own, everybody = Slo(ttft_s=1.0, tpot_s=inf), Slo(ttft_s=9.0, tpot_s=9.0)
    assert with_defaults((("chat", own),), ["chat", "code"]) == (
        ("", PRESETS["chat"]),
        ("chat", own),
        ("code", PRESETS["code"]),
    )
    given = (("", everybody), ("chat", own))
    assert with_defaults(given, ["chat", "code"]) == given
    assert with_defaults((), ["code"]) == default_slos(["code"])


@pytest.mark.parametrize(
    ("text", "name", "slo"),
    [
        ("ttft=500ms,tpot=50ms", "", Slo(ttft_s=0.5, tpot_s=0.05)),
        (" ttft = 2s , tpot = 0.1 s ", "", Slo(ttft_s=2.0, tpot_s=0.1)),
        ("tpot=1m", "", Slo(ttft_s=inf, tpot_s=60.0)),
        ("code:ttft=0.5s", "code", Slo(ttft_s=0.5, tpot_s=inf)),
        ("a:b:ttft=1s", "a:b", Slo(ttft_s=1.0, tpot_s=inf)),
    ],
)
def test_targets(text: str, name: str, slo: Slo) -> None:
    assert slos_of([text], []) == ((name, slo),)


def test_each_class_has_its_own() -> None:
    found = slos_of(["ttft=1s", "agents:tpot=20ms"], ["code:code"])
    assert found == (
        ("", Slo(ttft_s=1.0, tpot_s=inf)),
        ("agents", Slo(ttft_s=inf, tpot_s=0.02)),
        ("code", Slo(ttft_s=0.125, tpot_s=0.2)),
    )


@pytest.mark.parametrize(
    ("texts", "presets", "said"),
    [
        (["ttft=-1s"], [], 'ttft "-1s": must be a time such as 500ms'),
        (["ttft=0s"], [], "more than 0"),
        (["ttft=nan"], [], "must be a time"),
        (["ttft=nan s"], [], "must be a time"),
        (["ttft=inf"], [], "must be a time"),
        (["ttft=500"], [], "must be a time"),
        (["ttft=٣s"], [], "must be a time"),
        (["tttf=1s"], [], "did you mean ttft?"),
        (["e2e=1s"], [], '"e2e=1s" is no target: write ttft=500ms,tpot=50ms'),
        (["fast"], [], '"fast" is no target'),
        ([""], [], '"" is no target'),
        (["ttft=1s,"], [], '"" is no target'),
        (["ttft=1s,ttft=2s"], [], "names ttft twice"),
        (["ttft=1s", "tpot=1s"], [], "whoever is of no class has targets already"),
        (["code:ttft=1s"], ["code:code"], 'the class "code" has targets already'),
        ([":ttft=1s"], [], "no class before the colon"),
        ([], ["chatter"], "must be one of chat, chat-66b"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    texts: list[str], presets: list[str], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        slos_of(texts, presets)
    assert str(refused.value).startswith('--slo "' if not presets else '--slo-preset "')
    assert said in str(refused.value)
