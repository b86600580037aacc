"""One table of a TOML file: each kind of value is read, or refused with what it must be."""

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.core.faults.toml_table import Table, WrongValueError

Read = Callable[[Table], Any]


def number(table: Table) -> float | None:
    return table.number("k", 2.0, 1.0, 9.0)


def count(table: Table) -> int | None:
    return table.count("k", 2, 1, 9)


def seconds(table: Table) -> float | None:
    return table.seconds("k", low=0.5)


def text(table: Table) -> str | None:
    return table.text("k", "one")


def flag(table: Table) -> bool:
    return table.flag("k", True)


def choice(table: Table) -> str:
    return table.choice("k", ("left", "right"))


def texts(table: Table) -> tuple[str, ...]:
    return table.texts("k")


def table_of(table: Table) -> Any:
    return table.table("k")


def tables(table: Table) -> Any:
    return table.tables("k")


@pytest.mark.parametrize(
    ("read", "default", "value", "found"),
    [
        (number, 2.0, 9, 9.0),
        (count, 2, 3, 3),
        (seconds, None, "1.5m", 90.0),
        (text, "one", "two", "two"),
        (flag, True, False, False),
        (choice, "left", "right", "right"),
        (texts, (), ["a", "b"], ("a", "b")),
        (table_of, {}, {"a": 1}, {"a": 1}),
        (tables, [], [{"a": 1}, {}], [{"a": 1}, {}]),
    ],
)
def test_a_value_is_read_and_one_that_is_left_out_has_its_default(
    read: Read, default: object, value: object, found: object
) -> None:
    table = Table({"k": value})
    assert read(table) == found
    table.finish()
    assert read(Table({})) == default


@pytest.mark.parametrize(
    ("read", "value", "said"),
    [
        (number, "9", "must be a number"),
        (number, True, "true must be a number"),
        (count, True, "true must be a whole number"),
        (count, 10**400, "a huge number must be 1 to 9"),
        (number, 10**400, "a huge number must be 1 to 9"),
        (number, float("-inf"), "must be a number"),
        (number, float("nan"), "must be a number"),
        (number, 9.5, "9.5 must be 1 to 9"),
        (count, 2.5, "must be a whole number"),
        (seconds, 3, "must be a time such as"),
        (seconds, "3 days", "must be a time such as"),
        (seconds, "100ms", '"100ms" must be 0.5s to'),
        (text, 3, "must be a text in quotes"),
        (flag, "yes", "must be true or false"),
        (flag, 1, "must be true or false"),
        (choice, "up", 'must be one of "left", "right"'),
        (texts, "a", "must be a list of texts"),
        (texts, [1], "must be a list of texts"),
        (table_of, [], r"must be a table: \[k\]"),
        (tables, {}, r"must be tables: \[\[k\]\]"),
        (tables, [1], r"must be tables: \[\[k\]\]"),
    ],
)
def test_what_is_no_such_value_is_refused_by_its_key(read: Read, value: object, said: str) -> None:
    with pytest.raises(WrongValueError, match=f"^k: .*{said}"):
        read(Table({"k": value}))


def test_a_count_is_kept_to_its_last_digit() -> None:
    assert Table({"k": 2**62 - 1}).count("k", None, 0, 2**62) == 2**62 - 1
    with pytest.raises(WrongValueError, match=f"must be 0 to {2**62}$"):
        Table({"k": 2**62 + 1}).count("k", None, 0, 2**62)


def test_ranges_have_no_exponents() -> None:
    with pytest.raises(WrongValueError, match=r"^k: 2000000 must be 0\.0001 to 1000000$"):
        Table({"k": 2e6}).number("k", None, 1e-4, 1e6)


@pytest.mark.parametrize(
    ("key", "said"), [("fooo", "did you mean foo?"), ("other", "known here: foo, bar")]
)
def test_a_key_that_nobody_reads_is_refused_with_those_that_are(key: str, said: str) -> None:
    table = Table({"foo": 1, key: 2})
    table.number("foo", None, 0, 1)
    table.number("bar", None, 0, 1)
    with pytest.raises(WrongValueError) as refused:
        table.finish()
    assert str(refused.value) == f"{key}: no such key: {said}"
