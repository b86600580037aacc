"""A request's sizes: as its worker will count them."""

from router_kit import request

from antiphon.core.router import demand_of


def test_what_has_ended_is_no_demand_and_what_is_resumed_is() -> None:
    one = request("r", 100, n=3, resumed=((1,) * 10, (1,) * 20, (1,) * 30), done=(2,), attempt=2)
    demand = demand_of(one)
    assert (demand.tokens, demand.longest, demand.context, demand.sequences) == (130, 120, 230, 2)
    # One block of 64 is shared, by 4 pages; of the rest each has its own.
    assert demand.pages(16, 64) == 4 + 3 + 4
