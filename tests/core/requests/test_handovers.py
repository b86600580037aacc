"""When offers are renewed next: as a look at all owners says, and without one."""

from fleet_kit import offer_of, worker_info
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.requests.handovers import Handovers
from antiphon.types import Offer, Request, RequestId, SamplingParams, WorkerId

OWNERS = [worker_info(f"w{n}") for n in range(4)]
ONE = Request(id=RequestId("r"), prompt=(1, 2), sampling=SamplingParams(max_tokens=3, seed=0))


def offer(owner: int, number: int, ttl_s: float) -> Offer:
    return offer_of(ONE, OWNERS[owner], lease=f"l{number}", ttl_s=ttl_s)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "remove", "due"]),
            st.integers(0, 3),
            st.sampled_from([0.0, 0.3, 1.0, 2.5]),
            st.sampled_from([3.0, 9.0]),
        ),
        max_size=60,
    )
)
def test_the_next_renewal_is_that_of_the_owner_who_is_due_first(
    history: list[tuple[str, int, float, float]],
) -> None:
    made, live, due_at = Handovers(), list[Offer](), dict[WorkerId, float]()
    now = 0.0
    for number, (what, owner, later_s, ttl_s) in enumerate(history):
        now += later_s
        if what == "add":
            live.append(new := offer(owner, number, ttl_s))
            made.add(new, now)
            due_at[new.owner] = min(due_at.get(new.owner, float("inf")), now + ttl_s / 3)
        elif what == "remove" and live:
            made.remove(gone := live.pop(owner % len(live)))
            if all(one.owner != gone.owner for one in live):
                del due_at[gone.owner]
        else:
            renewed = {one.owner for one in made.due(now)}
            assert renewed == {name for name, at in due_at.items() if at <= now}
            for name in renewed:
                due_at[name] = now + min(one.ttl_s for one in live if one.owner == name) / 3
        assert made.next() == min(due_at.values(), default=None)
        assert len(made) == len(live)
