"""Which experts are chosen, against plain torch; and that a row's choice is its own."""

import numpy as np
import pytest
import torch

from antiphon.checkpoint import Experts, Scoring
from antiphon.engine.expert_choice import choose_experts
from antiphon.engine.expert_mix import rules_of

WIDTH = 48
RULES = {
    "mixtral": Experts(count=8, active=2, intermediate=1),
    "unnormalised": Experts(count=20, active=4, intermediate=1, normalised=False),
    "deepseek": Experts(
        count=16,
        active=5,
        intermediate=1,
        shared=2,
        scoring=Scoring.SIGMOID,
        scale=2.5,
        corrected=True,
        groups=4,
        active_groups=2,
    ),
    "all": Experts(count=5, active=5, intermediate=1),
}
EACH = pytest.mark.parametrize("experts", RULES.values(), ids=RULES.keys())


def drawn(experts: Experts, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(experts.count)
    scale = 0.3 if experts.corrected else 0.0
    return (
        torch.randn(rows, WIDTH, generator=generator),
        torch.randn(experts.count, WIDTH, generator=generator) * 0.2,
        torch.randn(experts.count, generator=generator) * scale,
    )


def chosen_by(
    experts: Experts, rows: torch.Tensor, router: torch.Tensor, correction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    slots = experts.active + experts.shared
    chosen, shares = np.empty((len(rows), slots), np.int64), np.empty((len(rows), slots), "f4")
    choose_experts(
        rows.numpy(), router.numpy(), correction.numpy(), rules_of(experts), chosen, shares
    )
    return torch.from_numpy(chosen), torch.from_numpy(shares)


def expected(
    experts: Experts, rows: torch.Tensor, router: torch.Tensor, correction: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Routed experts in ascending order, and their weights."""
    logits = rows @ router.T
    scores = logits.sigmoid() if experts.scoring is Scoring.SIGMOID else logits.softmax(-1)
    judged = (scores + correction).view(len(rows), experts.groups, -1)
    if experts.groups > 1:
        best = judged.topk(2).values.sum(-1).topk(experts.active_groups).indices
        kept = torch.zeros(len(rows), experts.groups).scatter(1, best, 1).bool()
        judged = judged.masked_fill(~kept[..., None], -torch.inf)
    chosen = judged.flatten(1).topk(experts.active).indices.sort().values
    weights = scores.gather(1, chosen)
    if experts.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    return chosen, weights * experts.scale


@EACH
def test_the_best_are_chosen(experts: Experts) -> None:
    given = drawn(experts, 200)
    chosen, shares = chosen_by(experts, *given)
    wanted, weights = expected(experts, *given)
    routed = experts.active
    assert torch.equal(chosen[:, :routed], wanted)
    torch.testing.assert_close(shares[:, :routed], weights, atol=1e-6, rtol=1e-5)
    shared = torch.arange(experts.count, experts.count + experts.shared)
    assert torch.equal(chosen[:, routed:], shared.expand(200, -1))
    assert (shares[:, routed:] == 1).all()


@EACH
def test_a_row_chooses_for_itself(experts: Experts) -> None:
    """Alone as beside others, and beside one that is no number: that one's weights are none."""
    rows, router, correction = drawn(experts, 9)
    chosen, shares = chosen_by(experts, rows, router, correction)
    rows[4, 7] = torch.nan
    flawed, weights = chosen_by(experts, rows, router, correction)
    others = torch.arange(9) != 4
    assert torch.equal(flawed[others], chosen[others])
    assert torch.equal(weights[others], shares[others])
    assert weights[4, : experts.active].isnan().all()
    assert len(flawed[4].unique()) == experts.active + experts.shared
    for row in range(9):
        if row != 4:
            one, share = chosen_by(experts, rows[row : row + 1], router, correction)
            assert torch.equal(one[0], chosen[row])
            assert torch.equal(share[0], shares[row])


def test_of_equal_scores_the_lower_number_is_better() -> None:
    experts = RULES["mixtral"]
    rows, router, correction = drawn(experts, 3)
    router[:] = router[0]
    chosen, shares = chosen_by(experts, rows, router, correction)
    assert chosen.tolist() == [[0, 1]] * 3
    assert torch.allclose(shares, torch.tensor(0.5))
