"""A report that says nothing new is passed over: no decision may show that it was."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from router_kit import info, request, router, view

from antiphon.core.router import Parts, Router, RouterLimits, WorkerBelief
from antiphon.types import RequestId, Role, Route, WorkerId, WorkerReported, WorkerView

WORKERS = [info(f"p{n}", Role.PREFILL) for n in range(3)] + [
    info(f"d{n}", Role.DECODE) for n in range(3)
]
VIEWS = [
    view(),
    view(steps_total=40, computed_tokens_total=40, busy_s_total=0.3),
    view(steps_total=90, computed_tokens_total=190, busy_s_total=2.0),
    view(steps_total=90, computed_tokens_total=190, busy_s_total=2.0, running=1, held_pages=9),
    view(steps_total=90, computed_tokens_total=190, busy_s_total=2.0, waiting=1, waiting_tokens=70),
]
Event = tuple[str, int, int, float]
"""What happens, to which worker or request, with which report, so long after the one before."""

events = st.lists(
    st.tuples(
        st.sampled_from(["report", "report", "choose", "prefilled", "settled"]),
        st.integers(0, 5),
        st.integers(0, len(VIEWS) - 1),
        st.sampled_from([0.0, 0.0, 0.5, 7.0]),
    ),
    max_size=40,
)


class Attentive(WorkerBelief):
    """Takes in each report, whatever it says."""

    def _says_the_same(self, view: WorkerView) -> bool:
        return False


def decisions(made: Router, history: Sequence[Event]) -> list[object]:
    answers: list[object] = []
    now, asked = 0.0, 0
    for what, which, seen, later_s in history:
        now += later_s
        match what:
            case "report":
                made.observe(WorkerReported(WORKERS[which].id, VIEWS[seen]), now)
            case "choose":
                answers.append(made.choose(request(f"r{asked}", 40 + 60 * which), now))
                asked += 1
            case "prefilled":
                made.prefilled(RequestId(f"r{which}"), now)
            case _:
                made.settled(RequestId(f"r{which}"), now)
    return answers


@settings(deadline=None, max_examples=300)
@given(events, st.sampled_from([2, 64]))
def test_decisions_are_those_of_a_router_that_takes_in_all(
    history: list[Event], most_predicted: int
) -> None:
    limits = RouterLimits(most_predicted=most_predicted)
    quick = router(*WORKERS, limits=limits)
    thorough = router(*WORKERS, limits=limits, parts=Parts(belief=Attentive))
    assert decisions(quick, history) == decisions(thorough, history)


def test_only_what_is_new_counts() -> None:
    made = router(*WORKERS)
    (belief,) = [one for one in made.workers if one.info.id == WorkerId("d0")]
    assert belief.reported(VIEWS[2], 0.0)
    assert not belief.reported(VIEWS[2], 1.0)
    assert belief.reported(VIEWS[3], 2.0)
    route = made.choose(request("r"), 2.0)
    assert isinstance(route, Route)
    used = [one for one in made.workers if one.info.id == route.prefill]
    assert used[0].reported(VIEWS[2], 3.0)
    assert used[0].reported(VIEWS[2], 4.0), "a request was sent there: each report may show it"
