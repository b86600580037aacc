"""Tokens that come as one event are those that come one by one."""

from antiphon.core.token_runs import each_token
from antiphon.types import RequestId, TokenGenerated, TokensGenerated

R = RequestId("r")


def token(index: int, token: int) -> TokenGenerated:
    return TokenGenerated(request=R, attempt=2, sequence=1, index=index, token=token)


def test_one_is_itself() -> None:
    assert list(each_token(token(3, 70))) == [token(3, 70)]


def test_a_run_is_its_tokens_in_order() -> None:
    run = TokensGenerated(
        request=R, attempt=2, sequence=1, index=3, tokens=(70, 71, 70), seconds=0.4
    )
    assert list(each_token(run)) == [token(3, 70), token(4, 71), token(5, 70)]
