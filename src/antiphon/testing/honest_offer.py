"""What a worker offers once it has computed a prompt, as tests have it."""

from collections.abc import Iterable

from antiphon.types import (
    LeaseId,
    Offer,
    OfferedPage,
    OfferedSequence,
    Request,
    Seconds,
    WorkerInfo,
)


def honest_offer(
    request: Request,
    owner: WorkerInfo,
    *,
    lease: str,
    ttl_s: Seconds,
    sequences: Iterable[int] | None = None,
) -> Offer:
    """Of `sequences`, else of all that are not done: the prompt and what was resumed, on page 0."""
    if sequences is None:
        sequences = [k for k in range(request.sampling.n) if k not in request.done]
    assert owner.kv is not None, "it has no KV that anybody could take"
    return Offer(
        request=request.id,
        attempt=request.attempt,
        lease=LeaseId(lease),
        ttl_s=ttl_s,
        owner=owner.id,
        incarnation=owner.incarnation,
        kv=owner.kv,
        numerics=owner.model.numerics,
        pages=(OfferedPage(0, 2, 77),),
        sequences=tuple(OfferedSequence(k, _tokens(request, k), (0,)) for k in sequences),
    )


def _tokens(request: Request, sequence: int) -> int:
    resumed = request.resumed[sequence] if sequence < len(request.resumed) else ()
    return len(request.prompt) + len(resumed)
