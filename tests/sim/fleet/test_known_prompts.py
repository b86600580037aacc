"""What a fleet knows of prompts beforehand is what its workers would find out of each."""

from collections.abc import Sequence
from dataclasses import replace

from small_fleet import pool, spec

from antiphon.core.kv import BlockKeys
from antiphon.core.scheduler.parts import id_range, no_names
from antiphon.sim.fleet import Fleet, TokenSession, TokenTurn, UserRules
from antiphon.sim.fleet.token_sessions import answer_tokens
from antiphon.sim.worker_parts import WorkerParts
from antiphon.types import BlockKey, CallRecord, ModelInfo, Request, Role

POOLS = (pool(Role.PREFILL, 2), pool(Role.DECODE, 2))


def sessions() -> list[TokenSession]:
    """Calls of two tenants: some begin alike, and lengths are on every side of a block."""
    return [
        TokenSession(
            number * 0.05,
            number,
            (TokenTurn((answer_tokens(number % 5, 9, 300), answer_tokens(number, 8, number)), 20),),
            tenant="one" if number % 3 else "other",
        )
        for number in range(60)
    ]


def records(kind: type[Fleet]) -> tuple[Fleet, list[CallRecord]]:
    made: list[CallRecord] = []
    fleet = kind(spec(*POOLS), iter(sessions()), UserRules(), made.append)
    fleet.run()
    return fleet, made


class Checking(Fleet):
    """Compares what is known with what a worker would compute."""

    known = 0

    def known_names(
        self, request: Request, model: ModelInfo, block_tokens: int
    ) -> Sequence[BlockKey]:
        names = super().known_names(request, model, block_tokens)
        own: list[BlockKey] = []
        BlockKeys(
            identity=model.identity,
            numerics=model.numerics,
            salt=request.tenant_salt,
            block_tokens=block_tokens,
        ).extend(own, request.prompt, len(names))
        assert list(names) == own
        self.known += len(names)
        return names


def test_workers_are_told_the_names_that_they_would_compute() -> None:
    fleet, made = records(Checking)
    assert len(made) == 60
    assert isinstance(fleet, Checking)
    assert fleet.known > 60 * 4


class Ignorant(Fleet):
    """Its workers find out everything themselves."""

    def worker_parts(self) -> WorkerParts:
        parts = super().worker_parts()
        scheduler = replace(parts.scheduler, known_names=no_names, id_range=id_range)
        return replace(parts, scheduler=scheduler)


def test_records_are_the_same_whether_anything_is_known_or_not() -> None:
    (_, ours), (_, theirs) = records(Fleet), records(Ignorant)
    assert ours == theirs
    assert any(one.cached_tokens for one in ours)
