"""A request's sizes: as its worker will count them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import request

from antiphon.core.router import demand_of
from antiphon.core.scheduler.intake import Limits


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 500), st.integers(1, 5), st.sampled_from([1, 2, 4]), st.integers(1, 4))
def test_pages_are_what_the_scheduler_s_intake_asks_for(
    tokens: int, n: int, pages_a_block: int, page_tokens: int
) -> None:
    limits = Limits(
        vocab_size=100,
        max_model_len=1000,
        page_tokens=page_tokens,
        block_tokens=pages_a_block * page_tokens,
        total_pages=1000,
        max_sequences=8,
    )
    demand = demand_of(request("r", tokens, n=n))
    pages = demand.pages(page_tokens, pages_a_block * page_tokens)
    assert pages == limits.prompt_pages(tokens, n)


def test_what_has_ended_is_no_demand_and_what_is_resumed_is() -> None:
    one = request("r", 100, n=3, resumed=((1,) * 10, (1,) * 20, (1,) * 30), done=(2,), attempt=2)
    demand = demand_of(one)
    assert (demand.tokens, demand.longest, demand.context, demand.sequences) == (130, 120, 230, 2)
    # One block of 64 is shared, by 4 pages; of the rest each has its own.
    assert demand.pages(16, 64) == 4 + 3 + 4
