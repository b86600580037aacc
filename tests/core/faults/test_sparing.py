"""Whom a cluster can do without."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.faults import can_be_spared
from antiphon.types import Role


@given(st.lists(st.sampled_from(Role), min_size=1, max_size=5))
def test_what_is_left_serves_each_phase_that_it_served(roles: list[Role]) -> None:
    workers = {f"w{number}": role for number, role in enumerate(roles)}
    for name, role in workers.items():
        others = {its for other, its in workers.items() if other != name}
        prefills = bool(others & {Role.PREFILL, Role.MIXED})
        decodes = bool(others & {Role.DECODE, Role.MIXED})
        needed = {
            Role.PREFILL: prefills,
            Role.DECODE: decodes,
            Role.MIXED: prefills and decodes,
        }
        assert can_be_spared(name, role, workers) is needed[role]
