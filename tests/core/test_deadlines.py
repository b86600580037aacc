from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.deadlines import Deadlines
from antiphon.types import RequestId

names = st.integers(0, 300).map(lambda number: RequestId(f"r{number}"))
steps = st.lists(
    st.tuples(st.just("add"), names, st.integers(0, 50).map(float))
    | st.tuples(st.just("remove"), names, st.just(0.0))
    | st.tuples(st.just("due"), names, st.integers(0, 50).map(float)),
    max_size=300,
)


@settings(deadline=None, max_examples=100)
@given(steps)
def test_equals_a_sorted_list(steps: list[tuple[str, RequestId, float]]) -> None:
    deadlines, model = Deadlines(), {}
    for action, name, at in steps:
        if action == "add" and name not in model:
            deadlines.add(name, at)
            model[name] = at
        elif action == "remove":
            deadlines.remove(name)
            model.pop(name, None)
        elif action == "due":
            due = sorted((when, who) for who, when in model.items() if when <= at)
            assert deadlines.pop_due(at) == [who for _, who in due]
            model = {who: when for who, when in model.items() if when > at}
        assert deadlines.next() == min(model.values(), default=None)


def test_memory_follows_what_is_open() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.add(RequestId(f"r{number}"), 1e9 - number)
        deadlines.remove(RequestId(f"r{number}"))
        assert len(deadlines._heap) <= 66
    assert deadlines.next() is None
