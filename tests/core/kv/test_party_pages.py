"""The pages of a party, against a count of every block and page that its sequences have."""

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.kv import party_pages


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 300),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 8),
    st.integers(1, 4),
)
def test_each_page_of_a_shared_block_counts_once(
    prompt: int, beyond: list[int], page_tokens: int, pages_a_block: int
) -> None:
    block_tokens = page_tokens * pages_a_block
    pages: set[tuple[int | None, int]] = set()
    for number, tokens in enumerate(beyond):
        for position in range(prompt + tokens):
            shared = (position // block_tokens + 1) * block_tokens <= prompt
            pages.add((None if shared else number, position // page_tokens))
    got = party_pages(prompt, beyond, page_tokens=page_tokens, block_tokens=block_tokens)
    assert got == len(pages)
