"""One class's lines: whose turn it is, who is ahead of whom, and who leaves."""

from antiphon.core.turns import PriorityClass, TenantRounds, Waiting

QUANTUM = 10


def one(number: int, tokens: int = QUANTUM) -> Waiting[int]:
    return Waiting(float(number), number, number, tokens, tokens)


def waiting(*tenants: bytes) -> PriorityClass[int]:
    """One of each, in this order, numbered from 0."""
    made = PriorityClass[int](TenantRounds(QUANTUM))
    for number, tenant in enumerate(tenants):
        made.put(one(number), tenant)
    return made


def test_in_a_round_whoever_has_waited_longest_is_first() -> None:
    made = waiting(b"c", b"a", b"c", b"b", b"a")
    assert [each.id for each in made.order()] == [0, 1, 3, 2, 4]
    assert made.head() == one(0)


def test_whoever_comes_again_is_last_in_the_ring() -> None:
    made = waiting(b"a", b"b")
    made.remove(one(0), b"a")
    made.put(one(2), b"a")
    assert [each.id for each in made.order()] == [1, 2]


def test_of_each_other_tenant_as_many_are_ahead_as_of_its_own() -> None:
    made = waiting(*[b"a"] * 9, b"b")
    assert made.place(one(9), b"b") == 1
    assert made.place(one(8), b"a") == 8 + 1
    made.put(one(10), None)
    assert made.place(one(9), b"b") == 2, "whoever has no tenant is before all"
    assert made.place(one(10), None) == 0
    assert made.head() == one(10)


def test_the_last_of_whoever_has_most_is_too_many() -> None:
    made = waiting(b"a", b"a", b"a", b"b", b"b", b"c")
    made.put(one(6), None)
    assert made.surplus() == 2
    made.remove(one(2), b"a")
    made.remove(one(1), b"a")
    assert made.surplus() == 4


def test_what_one_was_served_beyond_its_share_stays_while_it_waits_for_nothing() -> None:
    rounds = TenantRounds(QUANTUM)
    made = PriorityClass[int](rounds)
    made.put(one(0, tokens=5 * QUANTUM), b"a")
    rounds.serve(b"a", 5 * QUANTUM)
    made.remove(one(0, tokens=5 * QUANTUM), b"a")
    made.put(one(1), b"a")
    for number in range(2, 8):
        made.put(one(number), b"b")
    order = [each.id for each in made.order()]
    assert order == [2, 3, 4, 5, 6, 1, 7]
