"""Tables for a terminal: plain where it must be, as wide as they may be, and never markup."""

from dataclasses import replace
from io import StringIO

import pytest
from call_records import RUN as FIRST
from call_records import SLO, call, failure, load_run, saved, some
from found_searches import GOODPUT, SLO_SCALE
from rich.console import Console

from antiphon.report import (
    compare,
    compare_table,
    printed,
    search_table,
    summarise,
    summary_table,
)
from antiphon.types import Slo

RUN = load_run(warmup_s=1.0, notes=("The client fell behind.",))
CALLS = [
    call(0, due=0.5),
    *(call(number, due=1 + number / 50, cached_tokens=25) for number in range(1, 300)),
    failure(300, due=2.0, message="[bold red]full[/] \x1b[31m"),
]


def test_everything_of_a_run_is_there() -> None:
    text = printed(summary_table(RUN, summarise(RUN, CALLS)))
    assert text.startswith("At 33.3 requests/s (2 planned) 99.7 % (98.1–99.9) of 300 calls met ")
    for part in (
        "300, of which 299 ok, 1 failed; 1 more in the warm-up",
        "3,289 output, 29,900 prompt (25.0 % cached), counted by the server",
        "of 299 served calls",
        "not at its end in time",
        "Warning: The client fell behind.",
        "Warning: 1 call of 300 failed",
    ):
        assert part in text, part
    for line, cells in {
        "TTFT": ["100 ms"] * 6,
        "TPOT": ["10.0 ms"] * 6,
        "end to end": ["200 ms"] * 6,
    }.items():
        row = next(row for row in text.splitlines() if row.startswith(f" {line} "))
        assert row.count(cells[0]) == 6, row


def test_gaps_that_nobody_kept_are_no_number() -> None:
    records = [call(number, due=1 + number / 50, only_ends=True) for number in range(300)]
    text = printed(summary_table(RUN, summarise(RUN, records)))
    row = next(row for row in text.splitlines() if row.startswith(" ITL "))
    assert row.split() == ["ITL", *6 * ["–"]]


def test_text_of_a_server_is_no_markup_and_moves_no_cursor() -> None:
    text = printed(summary_table(RUN, summarise(RUN, CALLS)))
    assert "[bold red]full[/]  [31m" in text
    assert "\x1b" not in text


def test_names_of_models_and_classes_are_no_markup() -> None:
    records = [call(0, model="[/x]", slo_class="[red]"), call(1, model="b\x1b[2J", slo_class="c")]
    run = load_run(slos=(("", SLO), ("c", Slo(ttft_s=1.0, tpot_s=1.0))))
    text = printed(summary_table(run, summarise(run, records)))
    assert "[/x]" in text
    assert "[red]" in text
    assert "\x1b" not in text


def test_a_terminal_gets_colour_and_a_file_does_not() -> None:
    view = summary_table(RUN, summarise(RUN, CALLS))
    coloured, plain = StringIO(), StringIO()
    Console(file=coloured, force_terminal=True, width=100, color_system="standard").print(view)
    Console(file=plain, width=100).print(view)
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b[" not in plain.getvalue()


@pytest.mark.parametrize("width", [50, 70, 100, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    runs = [saved(some(1)), saved(some(2, misses=0.1), replace(FIRST, title="another server"))]
    views = [
        summary_table(RUN, summarise(RUN, CALLS), width=width),
        compare_table(compare(runs), width=width),
        search_table(GOODPUT),
    ]
    for view in views:
        for line in printed(view, width=width).splitlines():
            assert len(line) <= width, line


def test_a_narrow_terminal_loses_columns_but_not_numbers_that_decide() -> None:
    text = printed(summary_table(RUN, summarise(RUN, CALLS), width=60), width=60)
    assert "p95" not in text
    assert "p99" in text
    assert "99.7 % (98.1–99.9)" in text


def test_sessions_are_told_of_where_there_are_any() -> None:
    chat = [call(number, session=number // 2, turn=number % 2) for number in range(20)]
    assert "100 % (72.2–100.0) of 10 sessions met the targets" in printed(
        summary_table(RUN, summarise(load_run(), chat))
    )
    assert "sessions" not in printed(summary_table(RUN, summarise(load_run(), CALLS)))


def test_a_run_without_calls_is_told_as_such() -> None:
    text = printed(summary_table(load_run(), summarise(load_run(), [])))
    assert "nothing to judge by" in text
    assert "–" in text


@pytest.mark.parametrize("width", [60, 120])
def test_runs_stand_side_by_side(width: int) -> None:
    runs = [saved(some(1)), saved(some(2, ttft=0.3), replace(FIRST, title="[slow]", seed=2))]
    text = printed(compare_table(compare(runs), width=width), width=width)
    assert "[slow]" in text
    assert "× worse" in text
    assert "within noise" in text
    assert "Warning: The runs differ in more than the server: seed." in text
    assert text.count("Ratios are to the first run.") == 1


def test_a_search_shows_every_rate_and_why_it_passes() -> None:
    text = printed(search_table(GOODPUT))
    assert text.startswith("Goodput is 1.00 requests/s per device (2.00 on 2); 2.10/s fails.")
    rows = {line.split()[0]: line for line in text.splitlines() if "/s " in line[:8]}
    assert rows["1.00/s"].rstrip().endswith("passes")
    assert rows["2.00/s"].rstrip().endswith("passes (by its neighbours)")
    assert rows["2.10/s"].rstrip().endswith("fails")


def test_a_search_over_scales_shows_every_scale() -> None:
    text = printed(search_table(SLO_SCALE))
    assert "At 2 requests/s 90 % of 100 calls meet targets that are 0.800" in text
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["0.5", "1", "2"]


def test_tokens_that_were_not_reported_are_not_printed_as_zero() -> None:
    def text(**tokens: int | None) -> str:
        return printed(summary_table(load_run(), summarise(load_run(), [call(0, **tokens)])))

    nothing = text(prompt_tokens=None)
    assert "11 output, prompts not reported, counted" in nothing
    assert "– prompt tokens" in nothing
    assert "100 prompt (cached ones not reported)" in text()
    assert "100 prompt (0 % cached)" in text(cached_tokens=0)


def test_attainment_of_no_calls_is_no_number() -> None:
    run = load_run(warmup_s=5.0)
    text = printed(summary_table(run, summarise(run, [call(0, due=1.0)])))
    [row] = [line.split() for line in text.splitlines() if line.split()[:1] == ["all"]]
    assert row[-4:] == ["0", "–", "–", "–"]
    assert "0 %" not in text
