"""Packed objects come back whole; views are equal exactly for what is equal."""

from dataclasses import dataclass, field

from antiphon.testing.packed import TABLE, pack, unpack, view
from antiphon.types import Request, RequestId, SamplingParams


@dataclass(eq=False)
class Box:
    items: list[object] = field(default_factory=list)
    by_name: dict[str, object] = field(default_factory=dict)
    stamp: float = 0.0


def request(id: str = "r", prompt: tuple[int, ...] = (1, 2)) -> Request:
    return Request(id=RequestId(id), prompt=prompt, sampling=SamplingParams())


def test_equal_values_have_one_number() -> None:
    one, other = request(), request()
    assert one != other, "requests are compared by identity elsewhere"
    assert TABLE.number(one) == TABLE.number(other)
    assert TABLE.number(one) != TABLE.number(request(prompt=(1, 3)))
    assert TABLE.value(TABLE.number(other)) in (one, other)
    assert TABLE.number((1,)) != TABLE.number((True,))


def test_what_is_packed_comes_back_and_what_is_shared_stays_shared() -> None:
    inner = Box([1])
    box = Box([inner, inner, request()], {"a": inner})
    copy = unpack(pack(box))
    assert copy.items[0] is copy.items[1] is copy.by_name["a"]
    assert copy.items[0] is not inner
    assert copy.items[2].prompt == (1, 2)


def test_views_tell_values_apart_and_nothing_else() -> None:
    inner = Box([1])
    shared, apart = Box([inner, inner]), Box([Box([1]), Box([1])])
    assert view(shared, {}) == view(apart, {})
    assert view(Box([1]), {}) != view(Box([2]), {})
    assert view(Box([1], stamp=1.0), {}) != view(Box([1], stamp=2.0), {})
    ignored = {Box: ("stamp",)}
    assert view(Box([1], stamp=1.0), ignored) == view(Box([1], stamp=2.0), ignored)
    assert view(Box([request()]), {}) == view(Box([request()]), {})
    assert view(Box(["r" + "0"]), {}) == view(Box([str(RequestId("r0"))]), {})
