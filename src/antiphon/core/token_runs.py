"""Tokens that were said at once, one by one."""

from collections.abc import Iterator

from antiphon.types import TokenGenerated, TokensGenerated


def each_token(said: TokenGenerated | TokensGenerated) -> Iterator[TokenGenerated]:
    """The same tokens as events of their own, in order."""
    if isinstance(said, TokenGenerated):
        yield said
        return
    for place, token in enumerate(said.tokens):
        yield TokenGenerated(
            request=said.request,
            attempt=said.attempt,
            sequence=said.sequence,
            index=said.index + place,
            token=token,
        )
