"""Page tables and the flat batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import EVEN_SPEC

from antiphon.engine.attention import BLOCK_ROWS
from antiphon.engine.batch import Batch, PageTable, Run
from antiphon.engine.kv_memory import layout_of
from antiphon.errors import BugError

UPDATES = st.lists(
    st.tuples(st.integers(0, 40), st.lists(st.integers(0, 1000), max_size=40)), max_size=10
)


@given(UPDATES)
def test_a_page_table_is_a_list_whose_tail_is_replaced(
    updates: list[tuple[int, list[int]]],
) -> None:
    table, expected = PageTable(), []
    for start, pages in updates:
        if start > len(expected):
            with pytest.raises(BugError, match="can't go on"):
                table.extend(start, pages)
        else:
            table.extend(start, pages)
            expected[start:] = pages
        assert table.pages.tolist() == expected


SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=6)


@given(SPANS, st.sampled_from([1, 3, 16, 64]), st.data())
def test_rows_places_and_blocks_follow_from_the_runs(
    spans: list[tuple[int, int]], page_tokens: int, data: st.DataObject
) -> None:
    layout = layout_of(EVEN_SPEC, page_tokens)
    runs = []
    for number, (start, count) in enumerate(spans):
        table = PageTable()
        pages = -(-(start + count) // page_tokens)
        table.extend(0, range(1000 * number, 1000 * number + pages))
        sampled = data.draw(st.booleans())
        runs.append(Run(tokens=range(count), start=start, table=table, sampled=sampled))
    batch = Batch.of(runs, layout)
    row, last_rows, covered = 0, [], np.zeros(len(batch.tokens), int)
    for run in runs:
        for offset, token in enumerate(run.tokens):
            position = run.start + offset
            page = run.table.pages[position // page_tokens]
            slot = position % page_tokens * layout.head_width
            assert batch.tokens[row] == token
            assert batch.positions[row] == position
            assert batch.places[row, 0] == page * layout.page_stride + slot
            row += 1
        if run.sampled:
            last_rows.append(row - 1)
    assert batch.sampled.tolist() == last_rows
    for first, rows, position, table_at in batch.blocks.tolist():
        assert 1 <= rows <= BLOCK_ROWS
        assert batch.positions[first : first + rows].tolist() == [*range(position, position + rows)]
        page = batch.tables[0, table_at + position // page_tokens]
        assert batch.places[first, 0] // layout.page_stride == page
        covered[first : first + rows] += 1
    assert (covered == 1).all()
