"""Single orders of a planner, and what becomes of them."""

from dataclasses import replace

from planner_kit import IDLE_VIEW

from antiphon.core.planner import Add, AddOrder, EndOrder, MoveBook, PresentWorker, Take
from antiphon.types import Role, WorkerId

PREFILL, DECODE = Role.PREFILL, Role.DECODE
FIRST, SECOND = WorkerId("decode-0"), WorkerId("decode-1")
SERVES = PresentWorker(role=DECODE, view=IDLE_VIEW, life="1")
STARTS = PresentWorker(role=DECODE)


def test_an_answer_to_an_earlier_order_does_not_refuse_the_worker_of_that_name() -> None:
    """Names are used again. A late word of the first `decode-1` took the budget's place from the
    second, which was starting: a third one was asked for."""
    book, present = MoveBook(2), {FIRST: SERVES}
    [first] = book.carry_out([Add(DECODE, 1)], present, 0.0)
    book.look(present | {SECOND: STARTS}, 1.0)
    book.look(present, 2.0)
    [second] = book.carry_out([Add(DECODE, 1)], present, 50.0)
    assert (first.worker, second.worker) == (SECOND, SECOND)
    book.not_added(first.number, "exit code 1", 51.0)
    assert book.open_orders == (second,)
    assert list(book.look(present, 52.0)) == [FIRST, SECOND]
    assert (book.failed_adds, book.carry_out([Add(DECODE, 1)], present, 100.0)) == (1, [])


def test_how_long_a_start_takes_is_counted_from_the_order_and_said_once() -> None:
    book, present = MoveBook(3), {FIRST: SERVES}
    book.look(present, 0.0)
    assert book.starts_s() == (), "those of the beginning say nothing"
    book.carry_out([Add(DECODE, 2)], present, 10.0)
    present[SECOND] = STARTS
    book.look(present, 11.0)
    present[SECOND] = SERVES
    workers = book.look(present, 17.0)
    assert (workers[SECOND].since, workers[SECOND].ready_at) == (10.0, 17.0)
    assert (book.ready_s, book.starts_s(), book.starts_s()) == (7.0, (7.0,), ())


def test_another_life_and_another_role_are_new() -> None:
    book = MoveBook(3)

    def since(at: float, **facts: object) -> float:
        one = replace(SERVES, **facts)  # pyright: ignore
        return book.look({FIRST: one}, at)[FIRST].ready_at

    assert [since(at) for at in (1.0, 2.0)] == [1.0, 1.0]
    assert [since(at, view=None) for at in (3.0, 4.0)] == [3.0, 4.0], "it does not serve"
    assert [since(at, life="2") for at in (5.0, 6.0)] == [5.0, 5.0]
    assert [since(at, life="2", role=PREFILL) for at in (7.0, 8.0)] == [7.0, 7.0]
    assert book.look({FIRST: SERVES}, 9.0)[FIRST].since == 1.0, "from when on it costs"


def test_no_name_is_given_while_its_last_worker_is_being_ended() -> None:
    book = MoveBook(9)
    [end] = book.carry_out([Take(DECODE, 1)], {FIRST: SERVES, SECOND: SERVES}, 0.0)
    assert isinstance(end, EndOrder)
    here = {FIRST: SERVES, SECOND: SERVES}
    del here[end.worker]
    [add] = book.carry_out([Add(DECODE, 1)], here, 1.0)
    assert isinstance(add, AddOrder)
    assert add.worker == "decode-2"
    assert book.over(end.number)


def test_a_role_whose_workers_are_larger_is_not_added_where_a_smaller_one_is() -> None:
    book = MoveBook(4, devices={PREFILL: 2, DECODE: 1})
    orders = book.carry_out(
        [Add(PREFILL, 1), Add(DECODE, 2)], {FIRST: replace(SERVES, devices=2)}, 0.0
    )
    assert [order.role for order in orders] == [PREFILL]
    assert book.withheld(0.0) == "the budget of 4 is taken"
    orders = book.carry_out([Add(PREFILL, 1), Add(DECODE, 1)], {FIRST: SERVES}, 0.0)
    assert [order.role for order in orders] == [DECODE]
