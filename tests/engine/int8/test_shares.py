"""How the threads of a step divide it: whatever the number of rows, they meet equally often."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.int8 import llama_forward, mlp_steps

ROWS_APART = llama_forward._ROWS_APART


@given(st.integers(0, 5000), st.integers(1, 16))
@settings(deadline=None, max_examples=300)
def test_threads_go_apart_only_if_each_has_rows_enough(rows: int, threads: int) -> None:
    """The decision knows no thread, so all of them take the same one."""
    apart = llama_forward._apart.py_func(rows, threads)
    shares = [mlp_steps.share_of.py_func(rows, (one, threads)) for one in range(threads)]
    assert apart == all(last - first >= ROWS_APART for first, last in shares)
    assert shares[0][0] == 0
    assert shares[-1][1] == rows
    assert all(one[1] == other[0] for one, other in pairwise(shares))
