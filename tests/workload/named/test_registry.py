import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.workload import WORKLOADS, SingleCalls, fixed_length, lognormal_by_p99, parse_workload


def test_every_name_is_known_and_says_what_it_is() -> None:
    for kind in WORKLOADS:
        if kind.name == "mix":
            continue
        workload = parse_workload(f"{kind.name}:FILE" if kind.needs_file else kind.name)
        assert isinstance(workload, kind.kind)
        assert workload.description.startswith(f"{kind.name}: ")


def test_the_defaults_that_are_shown_are_the_defaults() -> None:
    for kind in WORKLOADS:
        shown = ",".join(f"{line.key}={line.default}" for line in kind.options if line.default)
        if kind.needs_file:
            assert parse_workload(f"{kind.name}:FILE,{shown}") == parse_workload(
                f"{kind.name}:FILE"
            )
        elif shown:
            assert parse_workload(f"{kind.name}:{shown}") == parse_workload(kind.name)


@pytest.mark.parametrize(
    "text",
    [
        "fixed:input=lognormal:mean=512,p99=4000,output=64",
        "fixed:output=64,input=lognormal:mean=512,p99=4000",
        " fixed : input = lognormal:mean=512 , p99=4000 , output = 64 ",
    ],
)
def test_a_value_may_have_options_of_its_own(text: str) -> None:
    workload = parse_workload(text)
    assert isinstance(workload, SingleCalls)
    assert (workload.input, workload.output) == (lognormal_by_p99(512, 4000), fixed_length(64))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'workload: must be one of fixed, chat, code, .*, not ""'),
        ("chatt", 'workload: must be one of fixed, chat, .*, not "chatt"'),
        (":", "workload: must be one of"),
        ("fixed:" + "x" * 9999, "must have at most 4096 characters"),
        ("fixed:input", '^fixed: "input" must be an option such as key=value'),
        ("fixed:=3", '^fixed: "=3" must be an option'),
        ("fixed:input=", '^fixed: "input=" must be an option'),
        ("fixed:input=5,,", '^fixed: "" must be an option'),
        ("fixed:inputs=5", '^fixed: there is no option "inputs": its options are input, output'),
        ("fixed:name=x", '^fixed: there is no option "name"'),
        ("fixed:input=5,input=6", "^fixed: input is given twice: keep one"),
        ("fixed:input=5,outptu=6", '^fixed: there is no option "outptu"'),
        ("fixed:input=0", "^fixed: input: a length must be from 1 to"),
        ("fixed:input=lognormal:mean=5,outptu=6", '^fixed: input: "outptu=6" is no parameter'),
        ("fixed:input=9000", "^fixed: max_context is 8192, but its shortest calls need 9192"),
        ("chat:scale=0", "^chat: scale must be from 0.001 to 1000, not 0"),
        ("chat:scale=nan", '^chat: scale must be a number from 0.001 to 1000, not "nan"'),
        ("chat:scale=-1", "^chat: scale must be from 0.001 to 1000, not -1"),
        ("chat:system=-1", '^chat: system must be a whole number from 0 to 1048576, not "-1"'),
        ("chat:api=http", '^chat: api must be chat or completion, not "http"'),
        ("chat:max_context=1e4", "^chat: max_context must be a whole number from 128"),
        ("chat:max_context=5", "^chat: max_context must be from 128 to 2097152, not 5"),
        ("multi-turn:think=-1s", '^multi-turn: think must be a time such as 30s, .* not "-1s"'),
        ("multi-turn:think=2y", '^multi-turn: think must be a time such as 30s, .* not "2y"'),
        ("multi-turn:think=25h", "^multi-turn: think must be from 0 to 86400, not 90000"),
        ("multi-turn:turns=0", "^multi-turn: turns: a length must be from 1"),
        ("rag:zipf=9", "^rag: zipf must be from 0 to 5, not 9"),
        ("rag:documents=0", "^rag: documents must be from 1 to 100000, not 0"),
        ("rag:retrieved=51", "^rag: retrieved must be from 1 to 50, not 51"),
        ("jsonl", "^jsonl: file is missing: give file="),
        ("jsonl:FILE,repeat=maybe", '^jsonl: repeat must be yes or no, not "maybe"'),
        ("jsonl:FILE,api=xml", '^jsonl: api must be chat or completion, not "xml"'),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_workload(text)


@settings(deadline=None, max_examples=300)
@given(st.text("fixedchatrgmul-:=,0123456789/.snp\x00é", max_size=40))
def test_any_text_is_a_workload_or_one_error(text: str) -> None:
    for whole in (text, f"fixed:{text}", f"mix:{text}", f"multi-turn:think={text}"):
        try:
            assert parse_workload(whole).description
        except UsageError as error:
            assert str(error)
