"""Calls to count: exact ones by hand, and any that there can be."""

from pathlib import Path
from random import Random

from hypothesis import strategies as st

from antiphon.report import SavedRun, summarise
from antiphon.types import CallError, CallRecord, LoadRun, Slo, TokenSource

SLO = Slo(ttft_s=0.5, tpot_s=0.05)


def load_run(**other: object) -> LoadRun:
    return LoadRun(
        **{
            "title": "here",
            "target": "http://127.0.0.1:8000/v1",
            "workload": "chats",
            "arrivals": "Poisson",
            "rate_per_s": 2.0,
            "duration_s": 10.0,
            "slos": (("", SLO),),
            **other,
        }
    )


def call(
    number: int,
    *,
    due: float = 0.0,
    ttft: float = 0.1,
    tpot: float = 0.01,
    tokens: int = 11,
    **other,
) -> CallRecord:
    """A call that came to its end, each token a piece; sent at once."""
    stamps = tuple(due + ttft + tpot * token for token in range(tokens))
    return CallRecord(
        **{
            "number": number,
            "session": number,
            "turn": 0,
            "due_at_s": due,
            "sent_at_s": due,
            "token_at_s": stamps,
            "ended_at_s": stamps[-1] if stamps else due,
            "prompt_tokens": 100,
            "output_tokens": tokens,
            "status": 200,
            **other,
        }
    )


def failure(number: int, *, due: float = 0.0, took: float = 1.0, **other) -> CallRecord:
    """A call that came to nothing."""
    return CallRecord(
        **{
            "number": number,
            "session": number,
            "turn": 0,
            "due_at_s": due,
            "sent_at_s": due,
            "ended_at_s": due + took,
            "error": CallError.TIMEOUT,
            "message": "nothing came",
            **other,
        }
    )


RUN = load_run(title="A", duration_s=100.0)


def saved(records: list[CallRecord], run: LoadRun = RUN, folder: str = "a") -> SavedRun:
    return SavedRun(
        folder=Path(folder), run=run, records=tuple(records), summary=summarise(run, records)
    )


def some(seed: int, *, ttft: float = 0.1, misses: float = 0.0) -> list[CallRecord]:
    """400 calls whose TTFT is exponential around `ttft` seconds."""
    chance = Random(seed)
    return [
        failure(number, due=number / 4)
        if chance.random() < misses
        else call(number, due=number / 4, ttft=chance.expovariate(1 / ttft), tokens=3)
        for number in range(400)
    ]


TIMES = st.floats(0, 1e4, allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**40)


@st.composite
def any_call(draw: st.DrawFn, *, number: int = 0, texts: st.SearchStrategy[str]) -> CallRecord:
    """Any call that there can be, up to three hours after the start."""
    due, sent, *stamps, ended = sorted(draw(st.lists(TIMES, min_size=3, max_size=6)))
    prompt, output, cached = draw(st.tuples(st.none() | COUNTS, COUNTS, st.none() | COUNTS))
    return CallRecord(
        number=number,
        session=draw(st.integers(0, 3)),
        turn=number,
        slo_class=draw(st.sampled_from(["", "chat", "code"])),
        model=draw(texts),
        due_at_s=due,
        sent_at_s=sent,
        token_at_s=tuple(stamps),
        ended_at_s=ended,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=cached,
        counted_by=draw(st.sampled_from(TokenSource)),
        status=number,
        error=draw(st.none() | st.sampled_from(CallError)),
        message=draw(texts),
        request_id=draw(texts),
    )


@st.composite
def many_calls(draw: st.DrawFn, *, most: int = 9) -> list[CallRecord]:
    """Different calls, in any order."""
    texts = st.sampled_from(["", "a", "b"])
    count = draw(st.integers(0, most))
    calls = [draw(any_call(number=number, texts=texts)) for number in range(count)]
    return draw(st.permutations(calls))
