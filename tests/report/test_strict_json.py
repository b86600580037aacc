"""JSON: what is written comes back equal, and nothing else is taken."""

from math import inf

import pytest
from call_records import SLO, any_call, load_run, many_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.goodput import Estimate, Goodput, StopReason
from antiphon.report import RunSummary, summarise
from antiphon.report.strict_json import WrongJson, decode, decode_file, encode, encode_file
from antiphon.types import CallRecord, LoadRun, Slo


@settings(deadline=None, max_examples=100)
@given(any_call(texts=st.text(max_size=20)))
def test_any_call_comes_back_equal(record: CallRecord) -> None:
    assert decode(encode(record), CallRecord) == record


@settings(deadline=None, max_examples=40)
@given(many_calls())
def test_any_summary_comes_back_equal(records: list[CallRecord]) -> None:
    summary = summarise(load_run(), records)
    assert decode_file(encode_file(summary), RunSummary) == summary


def test_a_target_that_there_is_not_is_null() -> None:
    run = load_run(slos=(("", Slo(ttft_s=0.5, tpot_s=inf)),), rate_per_s=None)
    content = encode_file(run)
    assert b'"tpot_s": null' in content
    assert decode_file(content, LoadRun) == run


def test_a_bound_that_there_is_not_is_null() -> None:
    estimate = Estimate(1.0, 0.0, inf)
    assert encode(estimate) == b'{"value":1.0,"low":0.0,"high":null}'
    assert decode(encode(estimate), Estimate) == estimate


def test_nulls_elsewhere_are_refused() -> None:
    content = encode_file(load_run()).replace(b'"duration_s": 10.0', b'"duration_s": null')
    with pytest.raises(WrongJson, match=r"Expected `float`, got `null` - at `\$.duration_s`"):
        decode_file(content, LoadRun)


def test_half_a_character_is_written_as_a_question_mark() -> None:
    run = load_run(title="a\ud800b", slos=(("", Slo(ttft_s=inf, tpot_s=1.0)),))
    read = decode_file(encode_file(run), LoadRun)
    assert read.title == "a?b"
    assert read.slos == run.slos


def test_what_may_be_missing_may_be_missing() -> None:
    """A file of an earlier program lacks what was added later, with a default."""
    content = encode_file(load_run()).replace(b' "seed": 0,\n', b"")
    assert decode_file(content, LoadRun) == load_run()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"format": 1', b'"format": 2', "format: is 2, but this program reads 1"),
        (b'"format": 1', b'"format": true', "format: is True"),
        (b'"format": 1,', b"", "has no `format`"),
        (b'"title": ', b'"titel": ', r"unknown key 'titel' at \$: known are title"),
        (b'"ttft_s"', b'"tfft_s"', r"unknown key 'tfft_s' at \$.slos\[0\]\[1\]"),
        (b' "title": "here",\n', b"", "missing required field `title`"),
        (b'"seed": 0', b'"seed": 0.5', r"Expected `int`, got `float` - at `\$.seed`"),
        (b'"seed": 0', b'"seed": true', r"Expected `int`, got `bool` - at `\$.seed`"),
        (b'"duration_s": 10.0', b'"duration_s": NaN', "is not JSON"),
        (b'"duration_s": 10.0', b'"duration_s": 1e999', "is not JSON: Number out of range"),
        (b'"here"', b'"\xff"', "is not JSON"),
        (b'"notes": []', b'"notes": {}', r"got `object` - at `\$.notes`"),
        (b"}\n", b"", "is not JSON: Input data was truncated"),
    ],
)
def test_what_is_wrong_is_named(old: bytes, new: bytes, problem: str) -> None:
    content = encode_file(load_run())
    assert old in content
    head, _, tail = content.rpartition(old) if old == b"}\n" else content.partition(old)
    with pytest.raises(WrongJson, match=problem):
        decode_file(head + new + tail, LoadRun)


@pytest.mark.parametrize("content", [b"", b"[]", b"1", b"{}", b"null", b"[" * 100_000])
def test_what_is_no_file_of_ours_is_refused(content: bytes) -> None:
    with pytest.raises(WrongJson):
        decode_file(content, LoadRun)


def test_unknown_keys_are_found_deep_within() -> None:
    found = Goodput(
        rate_per_s=1.0,
        fails_at_per_s=None,
        goal=0.9,
        devices=1,
        stopped=StopReason.ALL_PASS,
        probes=(),
    )
    content = encode_file(found)
    assert decode_file(content, Goodput) == found
    with pytest.raises(WrongJson, match=r"unknown key 'rate' at \$.probes\[0\]"):
        decode_file(content.replace(b"[]", b'[{"rate": 1}]'), Goodput)


def test_classes_have_their_targets() -> None:
    run = load_run(slos=(("", SLO), ("chat", Slo(ttft_s=inf, tpot_s=inf))))
    assert decode_file(encode_file(run), LoadRun).slos == run.slos
