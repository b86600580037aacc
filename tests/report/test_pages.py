"""Pages: whole in themselves, escaped, and with everything that a reader needs."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from call_records import SLO, call, failure, load_run, saved, some
from found_searches import GOODPUT, NOTHING_MEASURED, SLO_SCALE

from antiphon.errors import UsageError
from antiphon.report import (
    SavedSearch,
    compare,
    compare_page,
    open_search,
    run_page,
    save_search,
    search_page,
    summarise,
)
from antiphon.report.strict_json import encode_file
from antiphon.types import CallError, CallRecord, LoadRun, Slo

EVIL = "<script>alert('x')</script>\"&<img src=//evil>"
RUN = load_run(
    title="Antiphon",
    warmup_s=1.0,
    command="antiphon bench http://127.0.0.1:8000 --rate 2",
    version="0.1.0",
    notes=("The client fell behind.",),
)
CALLS = [
    call(0, due=0.5),
    *(call(number, due=1 + number / 50, request_id=f"r-{number}") for number in range(1, 300)),
    call(300, due=3.0, ttft=2.0, request_id="slowest"),
    failure(301, due=2.0, message="queue is full"),
]
VOID = {"meta", "br", "img", "hr", "link"}


class Page(HTMLParser):
    """The tags of a page; fails where they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.text += data


def page_of(run: LoadRun, records: list[CallRecord]) -> str:
    return run_page(run, summarise(run, records), records)


EVIL_RUN = replace(
    RUN,
    title=EVIL,
    target=EVIL,
    model=EVIL,
    notes=(EVIL,),
    command=EVIL,
    slos=((EVIL, Slo(ttft_s=1.0, tpot_s=1.0)), ("", SLO)),
)
EVIL_CALLS = [
    call(0, due=2.0, model=EVIL, slo_class=EVIL, request_id=EVIL),
    call(1, due=2.0),
    failure(2, due=2.0, message=EVIL),
    failure(3, due=2.0, message=EVIL, error=CallError.GARBAGE),
]
COMPARED = [saved(some(1)), saved(some(2), replace(RUN, title=EVIL))]
PAGES = {
    "run": lambda: page_of(RUN, CALLS),
    "evil run": lambda: page_of(EVIL_RUN, EVIL_CALLS),
    "empty run": lambda: page_of(RUN, []),
    "failed run": lambda: page_of(RUN, [failure(number, due=2.0) for number in range(5)]),
    "run of one call": lambda: page_of(RUN, CALLS[5:6]),
    "search": lambda: search_page(EVIL_RUN, GOODPUT, ["rate-1", EVIL]),
    "search for nothing": lambda: search_page(RUN, NOTHING_MEASURED),
    "comparison": lambda: compare_page(compare(COMPARED), COMPARED),
    "scales": lambda: SavedSearch(run=RUN, slo_scale=SLO_SCALE).page(),
}


@cache
def text_of_page(name: str) -> str:
    """Drawing takes a while: once is enough."""
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_well_formed_loads_nothing_and_runs_nothing(name: str) -> None:
    page = Page(text_of_page(name))
    assert page.tags["html"] == page.tags["body"] == page.tags["h1"] == 1
    assert not page.tags.keys() & {"script", "img", "iframe", "link", "object", "form", "image"}
    for attribute, value in page.attributes:
        assert not attribute.startswith("on"), attribute
        if attribute in ("href", "src", "xlink:href"):
            assert re.match(r"#|rate-1/report.html$|%3Cscript", value or ""), value
    assert "@import" not in text_of_page(name)
    assert not re.search(r"url\((?!#)", text_of_page(name))


@pytest.mark.parametrize("name", ["evil run", "search", "comparison"])
def test_text_from_elsewhere_is_shown_as_it_is(name: str) -> None:
    assert "<script" not in text_of_page(name)
    assert "<img" not in text_of_page(name)
    assert "<script>alert('x')</script>" in Page(text_of_page(name)).text


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique(name: str) -> None:
    ids = Counter(re.findall(r'\bid="([^"]+)"', text_of_page(name)))
    assert [one for one, count in ids.items() if count > 1] == []


def test_a_page_is_the_same_each_time() -> None:
    assert page_of(RUN, CALLS) == text_of_page("run")


def test_a_reader_who_was_not_there_finds_what_was_run_and_what_came_of_it() -> None:
    text = " ".join(Page(text_of_page("run")).text.split())
    for part in (
        "At 33.4 requests/s (2 planned) 99.3 % (97.6–99.8) of 301 calls met TTFT ≤ 500 ms",
        "The client fell behind.",
        "1 call of 301 failed",
        "antiphon bench http://127.0.0.1:8000 --rate 2",
        "10 s, of which 1 s are warm-up",
        "http://127.0.0.1:8000/v1",
        "of 300 served calls",
        "queue is full",
        "not at its end in time",
        "slowest",
        "Where a curve crosses the dashed line",
    ):
        assert part in text, part


def test_the_slowest_calls_are_the_slowest() -> None:
    table = text_of_page("run").partition("The slowest calls")[2]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)[1:]
    assert len(rows) == 10
    assert "slowest" in rows[0]
    assert "2.10 s" in rows[0]


def test_a_run_without_calls_says_so() -> None:
    assert "nothing to judge by" in text_of_page("empty run")
    assert "The slowest calls" not in text_of_page("empty run")


def test_classes_have_their_own_curves_and_rows() -> None:
    run = load_run(slos=(("chat", SLO), ("code", Slo(ttft_s=0.125, tpot_s=0.2))))
    records = [call(number, slo_class=["chat", "code"][number % 2]) for number in range(20)]
    text = Page(page_of(run, records)).text
    assert "TTFT ≤ 125 ms and TPOT ≤ 200 ms" in text
    assert "chat: TTFT ≤ 500 ms and TPOT ≤ 50 ms; code: " in text


def test_a_search_links_its_runs() -> None:
    assert '<a href="rate-1/report.html">rate-1</a>' in text_of_page("search")


@pytest.mark.parametrize(
    "search",
    [
        SavedSearch(run=RUN, goodput=GOODPUT, probes=("rate-1", "rate-2")),
        SavedSearch(run=RUN, slo_scale=SLO_SCALE),
    ],
)
def test_a_search_comes_back_equal(tmp_path: Path, search: SavedSearch) -> None:
    save_search(tmp_path, search)
    assert open_search(tmp_path) == search
    assert Page((tmp_path / "report.html").read_text()).tags["svg"] == 1


@pytest.mark.parametrize(
    "search",
    [SavedSearch(run=RUN), SavedSearch(run=RUN, goodput=GOODPUT, slo_scale=SLO_SCALE)],
)
def test_a_search_is_for_one_thing(tmp_path: Path, search: SavedSearch) -> None:
    (tmp_path / "search.json").write_bytes(_encoded(search))
    with pytest.raises(UsageError, match=r"search.json: goodput, slo_scale: exactly one"):
        open_search(tmp_path)


def _encoded(search: SavedSearch) -> bytes:
    return encode_file(search)


def test_cached_tokens_that_were_not_reported_are_not_drawn_as_zero() -> None:
    records = [call(0, prompt_tokens=None)]
    page = run_page(load_run(), summarise(load_run(), records), records)
    assert "not reported by the server" in page
    assert "tokens were cached" not in page


def test_goodput_is_drawn_only_where_it_can_be_compared() -> None:
    caption = "It is what came of this load"
    run = load_run(title="B", duration_s=100.0, rate_per_s=9.0)
    same, faster = [saved(some(1)), saved(some(2))], [saved(some(1)), saved(some(1), run)]
    assert caption in compare_page(compare(same), same)
    assert caption not in compare_page(compare(faster), faster)
    empty = [saved(some(1)), saved([])]
    assert caption not in compare_page(compare(empty), empty)
